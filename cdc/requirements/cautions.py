"""What works now and may hurt later: limits, time-outs, forgotten transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc import finding
from cdc.requirements import statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from cdc.finding import Finding
    from cdc.requirements.server import Server

_CLOCKS_APART_S: Final = 60
"""Kafka refuses timestamps an hour ahead; a minute apart is already a fault."""
_SHORT_WAL_SENDER_TIMEOUT_S: Final = 10
"""Below it a pause of a second or two in our status costs the connection."""


def cautions(server: Server, now: datetime) -> Iterator[Finding]:
    """Judge what works now and may hurt later."""
    yield _wal_limit(server)
    if server.idle_slot_timeout_s is not None:
        yield _idle_timeout(server)
    yield _wal_sender_timeout(server)
    yield _prepared(server)
    yield _commit_times(server)
    yield _clock(server, now)


def _wal_limit(server: Server) -> Finding:
    name = "postgres.max_slot_wal_keep_size"
    if server.slot_wal_keep_mb < 0:
        return finding.warning(
            name,
            "max_slot_wal_keep_size is -1: a slot whose consumer is away keeps WAL"
            " until the disk is full",
            # A size is the operator's to choose; this one is a start for 100 GB disks.
            statements.set_for_server("max_slot_wal_keep_size", "50GB"),
        )
    return finding.ok(name, f"a slot may keep {server.slot_wal_keep_mb} MB of WAL")


def _idle_timeout(server: Server) -> Finding:
    name = "postgres.idle_replication_slot_timeout"
    if server.idle_slot_timeout_s:
        return finding.warning(
            name,
            f"a slot without a consumer for {server.idle_slot_timeout_s} s is"
            " invalidated, whatever it still holds",
            statements.set_for_server("idle_replication_slot_timeout", "0"),
        )
    return finding.ok(name, "an idle slot is never invalidated")


def _wal_sender_timeout(server: Server) -> Finding:
    name = "postgres.wal_sender_timeout"
    seconds = server.wal_sender_timeout_ms / 1000
    remedy = statements.set_for_role(server.role, "wal_sender_timeout", "60s")
    if not seconds:
        return finding.warning(
            name,
            "wal_sender_timeout is 0: after a network failure the slot stays in use"
            " until TCP gives up",
            remedy,
        )
    if seconds < _SHORT_WAL_SENDER_TIMEOUT_S:
        return finding.warning(
            name,
            f"wal_sender_timeout is {seconds:g} s: a short pause of the relay or the"
            " network ends the stream",
            remedy,
        )
    return finding.ok(name, f"wal_sender_timeout is {seconds:g} s")


def _prepared(server: Server) -> Finding:
    name = "postgres.prepared_transactions"
    if not server.old_prepared:
        return finding.ok(name, "no prepared transaction is older than ten minutes")
    gid = server.old_prepared[0]
    return finding.warning(
        name,
        f"{len(server.old_prepared)} prepared transaction(s) older than ten minutes"
        f" hold WAL and keep new slots waiting, the oldest is {gid!r}",
        "finish what prepared it, or: " + statements.rollback_prepared(gid),
    )


def _commit_times(server: Server) -> Finding:
    name = "postgres.track_commit_timestamp"
    if server.tracks_commits:
        return finding.ok(name, "commit times are kept: a resnapshot knows their order")
    return finding.warning(
        name,
        "track_commit_timestamp is off: a resnapshot after a lost slot orders rows by"
        " transaction id, which is not the order of commits",
        statements.set_at_start("track_commit_timestamp", "on"),
    )


def _clock(server: Server, now: datetime) -> Finding:
    apart = (server.clock - now).total_seconds()
    if abs(apart) < _CLOCKS_APART_S:
        return finding.ok("postgres.clock", "its clock agrees with ours")
    return finding.warning(
        "postgres.clock",
        f"its clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} ours;"
        " records carry its commit times",
        "synchronise the clocks of both machines (NTP)",
    )
