"""Who holds the WAL that a slot retains, what is at stake, and what to do.

Retained WAL is lag and transaction gap. Lag is the consumer's: it has not confirmed.
The gap is everybody's: a write transaction anywhere in the cluster, prepared ones
included, keeps restart_lsn at its beginning until it has ended, a running-xacts record
has followed, and the consumer has confirmed beyond that. Transactions that only read
hold no WAL back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slots.state.finding import loss_reason
from slots.state.slot import WalStatus
from slots.state.trend import budget, time_to_loss_s
from slots.state.units import (
    MB,
    show_bytes,
    show_count,
    show_rate,
    show_seconds,
    show_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slots.state.limits import Limits
    from slots.state.reading import Blocker, Reading
    from slots.state.slot import Slot
    from slots.state.trend import Trend

_SHORT_S: Final = 1.0
"""Younger transactions are the ordinary traffic, and gone by the time one looks."""

_SHOWN: Final = 3
_WORTH_A_WORD: Final = 1 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Somebody or something that holds WAL.

    Attributes:
        who: a word for machines: ``consumer``, ``inactive``, ``transaction``,
            ``prepared_transaction``, ``ended_transaction``, ``standby``, ``creation``,
            ``lost``.
        held_bytes: how much of the WAL; None where that is not known.
        text: who, with what is known of them.
        remedy: what to do.

    """

    who: str
    held_bytes: int | None
    text: str
    remedy: str


def causes(reading: Reading, slot: Slot, trend: Trend) -> tuple[Cause, ...]:
    """Name who holds the WAL of a slot; empty when it holds nothing to speak of."""
    if slot.is_lost:
        return (_lost(slot),)
    if slot.is_being_made:
        return (_creation(slot), *_blocking(reading, None))
    return (*_of_lag(reading, slot, trend), *_of_gap(reading, slot))


def stake(reading: Reading, slot: Slot, trend: Trend, limits: Limits) -> str:
    """Say how much WAL is held, what is left, and for how long at the present rate."""
    if slot.is_lost:
        return "nothing is retained any more, and nothing can be saved"
    held = f"{show_bytes(reading.retained_bytes(slot))} of WAL retained"
    if trend.growth_bytes_s is not None:
        held += f", growing by {show_rate(max(0.0, trend.growth_bytes_s))}"
    left = budget(reading, slot, limits)
    if left is None:
        return (
            f"{held}; nothing limits it (max_slot_wal_keep_size is -1):"
            " it can fill the disk"
        )
    source = "max_slot_wal_keep_size" if left.is_of_server else "the disk limit"
    if slot.wal_status is WalStatus.UNRESERVED or left.safe_bytes <= 0:
        return f"{held}; {source} is used up: the next checkpoint takes the WAL away"
    seconds = time_to_loss_s(left, trend)
    end = "" if seconds is None else f", used up in {show_seconds(seconds)}"
    safe = show_bytes(left.safe_bytes)
    return f"{held}; {safe} left of {source} ({show_share(left.share)} used){end}"


def describe_blocker(blocker: Blocker) -> str:
    """Name a transaction, its session and its age, as far as they are known."""
    if blocker.gid is not None:
        subject = f"prepared transaction {blocker.gid!r} (xid {blocker.xid})"
    elif blocker.pid is not None:
        subject = f"pid {blocker.pid} (xid {blocker.xid})"
    else:
        subject = f"transaction {blocker.xid}"
    known = [
        f"database {blocker.database}" if blocker.database else "",
        f"user {blocker.user}" if blocker.user else "",
        f"application {blocker.application}" if blocker.application else "",
        f"from {blocker.address}" if blocker.address else "",
        blocker.state if blocker.state and blocker.gid is None else "",
        f"open for {show_seconds(blocker.open_s)}"
        if blocker.open_s is not None
        else "",
        f"latest query {show_seconds(blocker.query_s)} ago"
        if blocker.query_s is not None
        else "",
    ]
    return ", ".join([subject, *(one for one in known if one)])


def describe_consumer(slot: Slot) -> str:
    """Name who streams from a slot, as far as it is known."""
    known = [
        f"pid {slot.active_pid}",
        slot.active_application and f"application {slot.active_application}",
        slot.active_user and f"user {slot.active_user}",
        slot.active_address and f"from {slot.active_address}",
    ]
    return ", ".join(one for one in known if one)


def _of_lag(reading: Reading, slot: Slot, trend: Trend) -> Iterator[Cause]:
    lag = reading.lag_bytes(slot) or 0
    if not slot.active:
        if not (reading.server.is_in_recovery and slot.synced):
            yield _inactive(slot, trend, lag)
        return
    if lag < _WORTH_A_WORD:
        return
    standby = _standby(reading, slot, lag)
    if standby is not None:
        yield standby
        return
    stuck = (
        f" and has confirmed nothing for {show_seconds(trend.stuck_s)}"
        if trend.stuck_s
        else ""
    )
    reported = ""
    if slot.active_reply_at is not None:
        age_s = (reading.server.at - slot.active_reply_at).total_seconds()
        reported = f"; it last reported {show_seconds(max(0.0, age_s))} ago"
    yield Cause(
        who="consumer",
        held_bytes=lag,
        text=f"its consumer ({describe_consumer(slot)}) is {show_bytes(lag)} behind"
        f"{stuck}{reported}",
        remedy="look at the consumer: its log, and whether what it writes to takes what"
        " it is given",
    )


def _inactive(slot: Slot, trend: Trend, lag: int) -> Cause:
    if slot.inactive_since is not None:
        since = f" since {slot.inactive_since:%Y-%m-%d %H:%M:%S %Z}"
        since += f" ({show_seconds(trend.inactive_s)})" if trend.inactive_s else ""
    else:
        since = " (since when, Postgres tells from 17 on)"
    whose = "its consumer" if slot.is_logical else "the standby or backup it belongs to"
    return Cause(
        who="inactive",
        held_bytes=lag,
        text=f"nobody streams from it{since}; {show_bytes(lag)} wait for {whose}",
        remedy=f"start {whose}; if it is gone for good, `slots drop {slot.name}`"
        + (" and with it what waits" if lag else ""),
    )


def _standby(reading: Reading, slot: Slot, lag: int) -> Cause | None:
    """Tell whether a failover slot waits for standbys: they are served first."""
    wanted = reading.server.synchronized_standby_slots or ()
    if not slot.failover or not wanted:
        return None
    late = [
        description
        for name in wanted
        if (description := _lateness(reading, name)) is not None
    ]
    if not late:
        return None
    return Cause(
        who="standby",
        held_bytes=lag,
        text="its consumer is given nothing before the standbys of"
        f" synchronized_standby_slots have it: {'; '.join(late)}",
        remedy="start that standby, or take its slot out of synchronized_standby_slots"
        " and reload: then a failover may lose what the consumer has seen",
    )


def _lateness(reading: Reading, name: str) -> str | None:
    standby = reading.slot(name)
    if standby is None:
        return f"slot {name} does not exist"
    if standby.is_lost:
        return f"slot {name} is lost"
    if not standby.active:
        since = standby.inactive_since
        return f"slot {name} is inactive" + (
            f" since {since:%Y-%m-%d %H:%M:%S %Z}" if since else ""
        )
    behind = reading.retained_bytes(standby) or 0
    return (
        f"slot {name} is {show_bytes(behind)} behind"
        if behind >= _WORTH_A_WORD
        else None
    )


def _of_gap(reading: Reading, slot: Slot) -> Iterator[Cause]:
    gap = reading.gap_bytes(slot)
    if not gap:
        return
    blocking = tuple(_blocking(reading, gap))
    yield from blocking
    if not blocking and gap >= _WORTH_A_WORD:
        yield Cause(
            who="ended_transaction",
            held_bytes=gap,
            text=f"{show_bytes(gap)} are kept for a write transaction that has ended",
            remedy="it goes once the consumer confirms what follows the next"
            " running-xacts record: seconds with an active one, never without",
        )


def _blocking(reading: Reading, gap: int | None) -> Iterator[Cause]:
    """Name the oldest transactions; one whose age is hidden may be an old one."""
    old = [
        one for one in reading.blockers if one.open_s is None or one.open_s >= _SHORT_S
    ]
    if not old and (gap or 0) >= _WORTH_A_WORD:
        old = list(reading.blockers)
    for number, blocker in enumerate(old[:_SHOWN]):
        remedy = (
            f"COMMIT PREPARED '{blocker.gid}' or ROLLBACK PREPARED '{blocker.gid}' in"
            f" database {blocker.database}"
            if blocker.gid is not None
            else "have its application end it, or SELECT"
            f" pg_terminate_backend({blocker.pid})"
        )
        yield Cause(
            who="transaction" if blocker.gid is None else "prepared_transaction",
            held_bytes=gap if number == 0 else None,
            text=f"write transaction open: {describe_blocker(blocker)}",
            remedy=remedy,
        )


def _creation(slot: Slot) -> Cause:
    return Cause(
        who="creation",
        held_bytes=None,
        text=f"it is still being made (by {describe_consumer(slot)}): that waits for"
        " every write transaction that was open when it began",
        remedy="end those transactions, or the creation; a prepared one waits for ever",
    )


def _lost(slot: Slot) -> Cause:
    since = ""
    if slot.inactive_since is not None:
        since = f"; nobody streams since {slot.inactive_since:%Y-%m-%d %H:%M:%S %Z}"
    age = ""
    if slot.catalog_xmin_age:
        age = f"; its catalog_xmin ({show_count(slot.catalog_xmin_age)} transactions)"
        age += " holds VACUUM back no longer"
    return Cause(
        who="lost",
        held_bytes=None,
        text=f"it is lost ({loss_reason(slot)}): its consumer has confirmed"
        f" {slot.confirmed_flush_lsn or 'nothing'} and gets nothing more{since}{age}",
        remedy="copy the data to the consumer anew, then"
        f" `slots drop {slot.name}` and make it again",
    )
