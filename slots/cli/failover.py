"""``slots check --failover``: what is silent until the next switchover.

A failover slot is worth its name when every standby that may be promoted holds a copy
that is synced, persistent and alive, and when consumers are given nothing that the
standby lacks (synchronized_standby_slots). Postgres 17 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from slots.cli.readings import look
from slots.connect import Target, address
from slots.errors import ServerRefused
from slots.state import Finding, Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slots.state import Reading, Slot

_SINCE: Final = 17
_SET_UP: Final = (
    "on the standby: sync_replication_slots = on, hot_standby_feedback = on,"
    " primary_slot_name, and dbname in primary_conninfo"
)


async def failover_findings(
    target: Target,
    standbys: Sequence[str],
    names: Sequence[str] | None,
    *,
    limit_s: float,
) -> tuple[list[tuple[Finding, str]], str]:
    """Return what would go wrong at a switchover, and what to say when nothing would.

    Args:
        target: the primary.
        standbys: DSNs of those that may be promoted; they share the target's password.
        names: the slots concerned; none means every failover slot.
        limit_s: for each server.

    """
    primary, _ = await look(target, sample_s=0, limit_s=limit_s)
    if primary.server.major < _SINCE:
        raise ServerRefused(
            "failover slots are of Postgres 17 and later",
            hint="on older servers the high-availability tool copies slots",
        )
    if primary.server.is_in_recovery:
        raise ServerRefused(
            f"{address(target)} is a standby", hint="name the primary with --dsn"
        )
    slots, found = _wanted(primary, names)
    found += _of_primary(primary, slots)
    for dsn in standbys:
        standby = Target(
            dsn=SecretStr(dsn),
            password_file=target.password_file,
            password_command=target.password_command,
            application_name=target.application_name,
        )
        reading, _ = await look(standby, sample_s=0, limit_s=limit_s)
        found += _of_standby(reading, address(standby), primary, slots)
    if not standbys:
        found.append(
            _finding(
                Level.WARNING,
                "no standby was looked at",
                "name each with --standby DSN",
                "standbys",
            )
        )
    well = f"{len(slots)} failover slots are ready on {len(standbys)} standbys"
    return found, well


def _wanted(
    primary: Reading, names: Sequence[str] | None
) -> tuple[list[Slot], list[tuple[Finding, str]]]:
    if not names:
        slots = [slot for slot in primary.slots if slot.failover]
        if slots:
            return slots, []
        text = "no slot is a failover slot: a switchover loses all of them"
        return [], [_finding(Level.CRITICAL, text, _make("NAME"), "server")]
    slots, found = [], []
    for name in names:
        slot = primary.slot(name)
        if slot is None:
            text = "does not exist on the primary"
            found.append(_finding(Level.CRITICAL, text, f"`slots create {name}`", name))
            continue
        if not slot.failover:
            text = "is no failover slot: a switchover loses it"
            found.append(_finding(Level.CRITICAL, text, _make(name), name))
            continue
        slots.append(slot)
    return slots, found


def _make(name: str) -> str:
    return f"on a replication connection: ALTER_REPLICATION_SLOT {name} (FAILOVER true)"


def _of_primary(
    primary: Reading, slots: Sequence[Slot]
) -> Iterator[tuple[Finding, str]]:
    for slot in slots:
        if slot.is_lost:
            yield _finding(
                Level.CRITICAL, "is lost", f"`slots why {slot.name}`", slot.name
            )
    wanted = primary.server.synchronized_standby_slots
    if not wanted:
        yield _finding(
            Level.WARNING,
            "synchronized_standby_slots is empty: consumers can be given what a"
            " promoted standby never had",
            "ALTER SYSTEM SET synchronized_standby_slots = '<the standbys' slots>';"
            " SELECT pg_reload_conf()",
            "server",
        )
    for name in wanted or ():
        state = _standby_state(primary.slot(name))
        if state is not None:
            yield _finding(
                Level.CRITICAL,
                f"{state}, and failover slots wait for it (synchronized_standby_slots)",
                "start that standby, or take its slot out of the list",
                name,
            )


def _standby_state(slot: Slot | None) -> str | None:
    if slot is None:
        return "does not exist"
    if slot.is_lost:
        return "is lost"
    return None if slot.active else "is inactive"


def _of_standby(
    standby: Reading, where: str, primary: Reading, slots: Sequence[Slot]
) -> Iterator[tuple[Finding, str]]:
    if not standby.server.is_in_recovery:
        yield _finding(
            Level.CRITICAL, "is no standby", "name a standby with --standby", where
        )
        return
    for slot in slots:
        problem = _copy_problem(slot, standby.slot(slot.name), primary)
        if problem is not None:
            text, remedy = problem
            yield _finding(Level.CRITICAL, f"{text} at {where}", remedy, slot.name)


def _copy_problem(
    slot: Slot, copy: Slot | None, primary: Reading
) -> tuple[str, str] | None:
    if copy is None:
        return (
            "has no copy",
            _SET_UP,
        )
    if not copy.synced:
        return (
            "cannot be copied, a slot of the standby's own is in the way",
            f"drop it there: `slots drop {slot.name} --dsn <standby>`",
        )
    if copy.is_lost:
        return (
            f"has a copy that is lost ({copy.invalidation_reason})",
            "see the standby's log; the copy is made again once its reason is gone",
        )
    if copy.temporary:
        return (
            "has a copy that is not persistent yet",
            "let its consumer confirm something: it has to pass the standby's position",
        )
    confirmed, copied = slot.confirmed_flush_lsn, copy.confirmed_flush_lsn
    behind = 0 if confirmed is None or copied is None else confirmed - copied
    if behind > primary.server.max_wal_bytes:
        return (
            f"has a copy that is {behind} bytes behind",
            "see why the slot sync worker on the standby does not keep up",
        )
    return None


def _finding(level: Level, text: str, remedy: str, subject: str) -> tuple[Finding, str]:
    return Finding(kind=Kind.FAILOVER, level=level, text=text, remedy=remedy), subject
