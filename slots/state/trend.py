"""How a slot has moved over the last hour, and when its budget is used up.

Times are the server's; a server whose clock or WAL has gone back (a failover, a
restored backup) begins a new history.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slots.state.units import HOUR_S, MB, MINUTE_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from slots.lsn import Lsn
    from slots.state.limits import Limits
    from slots.state.reading import Reading
    from slots.state.slot import Slot

WINDOWS_S: Final = (5 * MINUTE_S, HOUR_S)
_SPACING_S: Final = 10.0
"""Readings that follow each other faster are not all kept: an hour is 360 of them."""

_DETAILED: Final = 60
"""The latest readings are kept whatever their distance, to be looked at."""

_SHORTEST_S: Final = 0.5
_SETTLED_S: Final = 60.0
"""A slot that is read from gives WAL free in steps, with every running-xacts record
(bgwriter: 15 s); over less than that its growth is chance."""

_BEHIND_BYTES: Final = 16 * MB
"""Less than a WAL file behind, a consumer that says nothing has cost nothing: an idle
server writes a little WAL, and some consumers confirm only what is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a slot may retain.

    Attributes:
        safe_bytes: what is left; below zero once it is used up.
        share: what is used.
        is_of_server: max_slot_wal_keep_size sets it; otherwise the user's disk limit.

    """

    safe_bytes: int
    share: float
    is_of_server: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What is known of a slot's movement; None is unknown.

    Attributes:
        growth_bytes_s: of what is retained, the faster of 5 minutes and an hour; below
            zero when it shrinks.
        is_settled: whether that is more than chance, and may be forecast from.
        inactive_s: for how long nobody has streamed from it.
        stuck_s: for how long its consumer has confirmed nothing although behind.

    """

    growth_bytes_s: float | None = None
    is_settled: bool = False
    inactive_s: float | None = None
    stuck_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A slot at one moment."""

    at_s: float
    wal: int
    retained: int


@dataclass(slots=True)
class _Past:
    """What is remembered of a slot."""

    samples: deque[Sample]
    recent: deque[Sample]
    inactive_from: datetime | None = None
    position: Lsn | None = None
    stuck_from: datetime | None = None


class History:
    """Readings of the last hour, in bounded memory whatever the polling interval.

    Args:
        is_continuous: whether a slot counts as inactive from the reading on that first
            shows it so, where the server does not tell; otherwise that is not known.

    """

    def __init__(self, *, is_continuous: bool = True) -> None:
        self._is_continuous = is_continuous
        self._past: dict[str, _Past] = {}
        self._at: datetime | None = None
        self._wal: Lsn | None = None

    def observe(self, reading: Reading) -> None:
        """Remember a reading; slots that are gone are forgotten."""
        server = reading.server
        if self._has_gone_back(reading):
            self._past.clear()
        self._at, self._wal = server.at, server.wal_position
        self._past = {
            slot.name: self._remember(slot, reading) for slot in reading.slots
        }

    def forget(self, name: str) -> None:
        """Begin anew with a slot, which is not the one it was."""
        self._past.pop(name, None)

    def trend(self, slot: Slot) -> Trend:
        """Return what is known of a slot of the latest reading."""
        past = self._past.get(slot.name)
        if past is None or self._at is None:
            return Trend()
        inactive_s = self._since(slot.inactive_since or past.inactive_from)
        stuck_s = self._since(past.stuck_from)
        # A consumer that reconnects is away for a moment: no reason for a forecast.
        still_s = stuck_s or 0.0 if slot.active else inactive_s
        is_moving = still_s is not None and still_s < _SETTLED_S
        return Trend(
            growth_bytes_s=_growth(past.samples, is_moving=is_moving),
            is_settled=not is_moving or _span_s(past.samples) >= _SETTLED_S,
            inactive_s=None if slot.active else inactive_s,
            stuck_s=stuck_s,
        )

    def samples(self, name: str) -> tuple[Sample, ...]:
        """Return what is kept of a slot, oldest first; in detail while it is young."""
        past = self._past.get(name)
        if past is None:
            return ()
        is_young = len(past.samples) < _DETAILED
        return tuple(past.recent if is_young else past.samples)

    def _has_gone_back(self, reading: Reading) -> bool:
        server = reading.server
        if self._at is not None and server.at < self._at:
            return True
        return (
            self._wal is not None
            and server.wal_position is not None
            and server.wal_position < self._wal
        )

    def _remember(self, slot: Slot, reading: Reading) -> _Past:
        past = self._past.get(slot.name) or _Past(deque(), deque(maxlen=_DETAILED))
        now = reading.server.at
        if slot.active:
            past.inactive_from = None
        elif self._is_continuous and past.inactive_from is None:
            past.inactive_from = now
        lag = reading.lag_bytes(slot)
        is_behind = lag is not None and lag >= _BEHIND_BYTES
        if not (is_behind and slot.active):
            past.stuck_from = None
        elif past.stuck_from is None or slot.position != past.position:
            past.stuck_from = now
        past.position = slot.position
        retained, wal = reading.retained_bytes(slot), reading.server.wal_position
        if retained is not None and wal is not None:
            sample = Sample(now.timestamp(), wal, retained)
            past.recent.append(sample)
            _keep(past.samples, sample)
        return past

    def _since(self, moment: datetime | None) -> float | None:
        if moment is None or self._at is None:
            return None
        return max(0.0, (self._at - moment).total_seconds())


def budget(reading: Reading, slot: Slot, limits: Limits) -> Budget | None:
    """Return what a slot may retain; None when nothing limits it, or it is lost."""
    retained = reading.retained_bytes(slot)
    if retained is None:
        return None
    if slot.safe_wal_bytes is not None:
        total = retained + slot.safe_wal_bytes
        return Budget(
            safe_bytes=slot.safe_wal_bytes,
            share=retained / total if total > 0 else 1.0,
            is_of_server=True,
        )
    if limits.disk is None:
        return None
    return Budget(
        safe_bytes=limits.disk - retained,
        share=retained / limits.disk,
        is_of_server=False,
    )


def time_to_loss_s(left: Budget | None, trend: Trend) -> float | None:
    """Forecast when a budget is used up; None when that is not in sight.

    The server takes WAL away with a checkpoint, so the real end comes later by up to
    one checkpoint_timeout.
    """
    if left is None:
        return None
    if left.safe_bytes <= 0:
        return 0.0
    if not trend.is_settled or not trend.growth_bytes_s or trend.growth_bytes_s < 0:
        return None
    return left.safe_bytes / trend.growth_bytes_s


def is_replaced(before: Slot, now: Slot, *, has_restarted: bool) -> bool:
    """Tell whether a slot has been dropped and made again since it was last seen.

    A slot has no identity besides its name. What gives a new one away: another kind or
    plugin, life after loss, or decoding statistics that have begun again without having
    been reset (a restart after a crash begins them again, too).
    """
    if before.is_lost and not now.is_lost:
        return True
    if _kind(before) != _kind(now):
        return True
    if has_restarted or before.statistics_reset_at != now.statistics_reset_at:
        return False
    return (now.decoded_transactions or 0) < (before.decoded_transactions or 0)


def _kind(slot: Slot) -> Mapping[str, object]:
    return {
        "slot_type": slot.slot_type,
        "plugin": slot.plugin,
        "database": slot.database,
        "temporary": slot.temporary,
    }


def _keep(samples: deque[Sample], fresh: Sample) -> None:
    is_close = len(samples) > 1 and samples[-1].at_s - samples[-2].at_s < _SPACING_S
    if is_close:
        samples[-1] = fresh
    else:
        samples.append(fresh)
    # One more than the window: a rate over an hour needs its beginning.
    while samples[-1].at_s - samples[0].at_s > WINDOWS_S[-1] + _SPACING_S:
        samples.popleft()


def _growth(samples: deque[Sample], *, is_moving: bool) -> float | None:
    """Return the faster growth of the windows.

    What nobody reads from grows as the WAL does: that rate is known at once, and one
    from before the consumer stopped would hide what is coming.
    """
    rates = [_rate(samples, window_s, is_moving=is_moving) for window_s in WINDOWS_S]
    known = [rate for rate in rates if rate is not None]
    return max(known) if known else None


def _rate(samples: deque[Sample], window_s: float, *, is_moving: bool) -> float | None:
    if not samples:
        return None
    newest = samples[-1]
    oldest = next(one for one in samples if newest.at_s - one.at_s <= window_s)
    span_s = newest.at_s - oldest.at_s
    if span_s < _SHORTEST_S:
        return None
    if is_moving:
        return (newest.retained - oldest.retained) / span_s
    return (newest.wal - oldest.wal) / span_s


def _span_s(samples: deque[Sample]) -> float:
    return samples[-1].at_s - samples[0].at_s if samples else 0.0
