"""What is wrong with a slot, how badly, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slots.state.finding import Finding, Kind, loss_reason
from slots.state.limits import Level
from slots.state.slot import WalStatus
from slots.state.trend import budget, time_to_loss_s
from slots.state.units import (
    show_bytes,
    show_count,
    show_rate,
    show_seconds,
    show_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slots.state.limits import Limits, Threshold
    from slots.state.reading import Reading
    from slots.state.slot import Slot
    from slots.state.trend import Trend


_NOTHING_WAS: Final[Mapping[Kind, Level]] = {}

_CONSUMER: Final = "see who reads it with `slots why {name}`"


def health(
    reading: Reading,
    slot: Slot,
    trend: Trend,
    limits: Limits,
    was: Mapping[Kind, Level] = _NOTHING_WAS,
) -> tuple[Finding, ...]:
    """Judge a slot; nothing found is good health.

    Args:
        reading: the slot's.
        slot: to be judged.
        trend: how it has moved.
        limits: from when on it is worth a word.
        was: the levels found before, which are left with a margin only.

    """
    if slot.is_lost:
        return (_lost(slot),)
    found = [
        _unreserved(slot),
        _ahead(reading, slot),
        *_sizes(reading, slot, limits, was),
        *_budget(reading, slot, trend, limits, was),
        *_transactions(reading, slot, limits, was),
        *_consumer(reading, slot, trend, limits, was),
        _xmin(slot, limits.xmin_age, was),
    ]
    return tuple(one for one in found if one is not None)


def server_health(
    reading: Reading, limits: Limits, was: Mapping[Kind, Level] = _NOTHING_WAS
) -> tuple[Finding, ...]:
    """Judge what concerns all slots."""
    found = []
    server, used = reading.server, len(reading.slots)
    share = used / server.max_slots if server.max_slots else None
    level = limits.slot_count.level(share, was.get(Kind.SLOT_COUNT, Level.OK))
    if level:
        found.append(
            Finding(
                kind=Kind.SLOT_COUNT,
                level=level,
                text=f"{used} of {server.max_slots} replication slots are in use",
                remedy="drop what nobody needs (`slots list`), or raise"
                " max_replication_slots, which takes a restart",
            )
        )
    if limits.no_wal_limit and server.slot_wal_limit_bytes is None and reading.slots:
        found.append(
            Finding(
                kind=Kind.NO_WAL_LIMIT,
                level=Level.WARNING,
                text="max_slot_wal_keep_size is -1: a dead consumer can fill the disk",
                remedy="ALTER SYSTEM SET max_slot_wal_keep_size = '...'; SELECT"
                " pg_reload_conf(); choose what the disk can spare",
            )
        )
    return tuple(found)


def _lost(slot: Slot) -> Finding:
    return Finding(
        kind=Kind.LOST,
        level=Level.CRITICAL,
        text=f"lost ({loss_reason(slot)}); its consumer has confirmed"
        f" {slot.confirmed_flush_lsn or 'nothing'}, what followed will never come",
        remedy=f"copy the data to the consumer anew, then `slots drop {slot.name}` and"
        " make it again; raise max_slot_wal_keep_size if it was too small",
    )


def _unreserved(slot: Slot) -> Finding | None:
    if slot.wal_status is not WalStatus.UNRESERVED:
        return None
    return Finding(
        kind=Kind.UNRESERVED,
        level=Level.CRITICAL,
        text="beyond max_slot_wal_keep_size: the next checkpoint takes its WAL away",
        remedy="raise max_slot_wal_keep_size and reload at once, or get its consumer"
        " going: it can still catch up until that checkpoint",
    )


def _ahead(reading: Reading, slot: Slot) -> Finding | None:
    ahead = reading.ahead_bytes(slot)
    if not ahead:
        return None
    return Finding(
        kind=Kind.AHEAD,
        level=Level.CRITICAL,
        text=f"{show_bytes(ahead)} ahead of the server's WAL: commits up to"
        f" {slot.position} would be skipped without a word",
        remedy="this server lacks the end of the WAL its consumer has read (a failover"
        " or a restore): compare the two, then make the slot again",
    )


def _sizes(
    reading: Reading, slot: Slot, limits: Limits, was: Mapping[Kind, Level]
) -> Iterator[Finding | None]:
    remedy = _CONSUMER.format(name=slot.name)
    retained, lag = reading.retained_bytes(slot), reading.lag_bytes(slot)
    yield _judged(
        (Kind.RETAINED, limits.retained, retained),
        was,
        f"{show_bytes(retained)} of WAL retained",
        remedy,
    )
    yield _judged(
        (Kind.LAG, limits.lag, lag),
        was,
        f"its consumer has not confirmed {show_bytes(lag)} of WAL",
        remedy,
    )


def _budget(
    reading: Reading,
    slot: Slot,
    trend: Trend,
    limits: Limits,
    was: Mapping[Kind, Level],
) -> Iterator[Finding | None]:
    left = budget(reading, slot, limits)
    if left is None:
        return
    source = "max_slot_wal_keep_size" if left.is_of_server else "the disk limit"
    remedy = (
        f"get its consumer going or raise {source} in time;"
        f" `slots why {slot.name}` names what holds the WAL"
    )
    yield _judged(
        (Kind.BUDGET, limits.budget, left.share),
        was,
        f"{show_share(left.share)} of {source} used,"
        f" {show_bytes(left.safe_bytes)} left",
        remedy,
    )
    seconds = time_to_loss_s(left, trend)
    yield _judged(
        (Kind.TIME_TO_LOSS, limits.time_to_loss, seconds),
        was,
        f"{source} is used up in {show_seconds(seconds)}"
        f" at {show_rate(trend.growth_bytes_s)}",
        remedy,
    )


def _transactions(
    reading: Reading, slot: Slot, limits: Limits, was: Mapping[Kind, Level]
) -> Iterator[Finding | None]:
    remedy = f"`slots why {slot.name}` names the transaction; end it"
    gap = reading.gap_bytes(slot)
    yield _judged(
        (Kind.TRANSACTION_GAP, limits.transaction_gap, gap),
        was,
        f"{show_bytes(gap)} of WAL kept for open write transactions",
        remedy,
    )
    if not gap and not slot.is_being_made:
        return
    ages = [one.open_s for one in reading.blockers if one.open_s is not None]
    oldest = max(ages, default=None)
    yield _judged(
        (Kind.TRANSACTION_AGE, limits.transaction_age, oldest),
        was,
        f"waits for a write transaction that is open for {show_seconds(oldest)}",
        remedy,
    )


def _consumer(
    reading: Reading,
    slot: Slot,
    trend: Trend,
    limits: Limits,
    was: Mapping[Kind, Level],
) -> Iterator[Finding | None]:
    is_standbys_copy = reading.server.is_in_recovery and slot.synced
    if not slot.active and not is_standbys_copy:
        yield _inactive(slot, trend, limits.inactive, was)
    yield _judged(
        (Kind.NO_PROGRESS, limits.no_progress, trend.stuck_s),
        was,
        f"its consumer is connected and behind, and has confirmed nothing for"
        f" {show_seconds(trend.stuck_s)}",
        _CONSUMER.format(name=slot.name),
    )


def _inactive(
    slot: Slot, trend: Trend, threshold: Threshold, was: Mapping[Kind, Level]
) -> Finding | None:
    remedy = f"start its consumer; if it is gone for good, `slots drop {slot.name}`"
    if trend.inactive_s is not None:
        return _judged(
            (Kind.INACTIVE, threshold, trend.inactive_s),
            was,
            f"nobody has streamed from it for {show_seconds(trend.inactive_s)}",
            remedy,
        )
    if threshold.warning is None and threshold.critical is None:
        return None
    return Finding(
        kind=Kind.INACTIVE,
        level=Level.WARNING,
        text="nobody streams from it (since when, Postgres tells from 17 on)",
        remedy=remedy,
    )


def _xmin(
    slot: Slot, threshold: Threshold, was: Mapping[Kind, Level]
) -> Finding | None:
    age = max(slot.xmin_age or 0, slot.catalog_xmin_age or 0)
    rows = "rows" if age == slot.xmin_age else "catalog rows"
    return _judged(
        (Kind.XMIN_AGE, threshold, age or None),
        was,
        f"VACUUM has to keep {rows} of {show_count(age)} transactions for it",
        f"get its consumer going, or `slots drop {slot.name}`",
    )


def _judged(
    measured: tuple[Kind, Threshold, float | None],
    was: Mapping[Kind, Level],
    text: str,
    remedy: str,
) -> Finding | None:
    kind, threshold, value = measured
    level = threshold.level(value, was.get(kind, Level.OK))
    if not level:
        return None
    return Finding(kind=kind, level=level, text=text, remedy=remedy)
