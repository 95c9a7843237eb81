"""Readings in, alarms raised and cleared out: each once, with hysteresis.

A reading that fails is an alarm of its own; what was up before stays up until a reading
shows that it is over. Nothing here knows how an alarm is told.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slots.state import (
    Finding,
    History,
    Kind,
    Level,
    Limits,
    Threshold,
    health,
    is_replaced,
    server_health,
)
from slots.state.units import HOUR_S, MINUTE_S, show_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from slots.state import Reading, Slot

READING_FAILED: Final = Threshold(0.0, 5 * MINUTE_S)
"""One failed reading is a restart, or a dropped line; five minutes are an outage."""

_SHOWN_S: Final = 1 * HOUR_S
"""What happened and is over, a slot dropped or made anew, is up that long."""

_SERVER: Final = ""
"""The slot name of what concerns all slots."""


class AlarmState(enum.StrEnum):
    """What a change says of an alarm."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that is wrong, since when.

    Attributes:
        slot_name: empty for what concerns the server.
        database: of the slot; empty for a physical one.

    """

    kind: Kind
    level: Level
    slot_name: str
    slot_type: str
    database: str
    text: str
    remedy: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An alarm was raised (anew or to another level) or cleared.

    Attributes:
        alarm: as it is now; when cleared, as it was.
        was: the level before.

    """

    state: AlarmState
    alarm: Alarm
    was: Level
    at: datetime


class Alarms:
    """The alarms of one server.

    Args:
        limits: from when on something is worth an alarm.
        names: the slots that have to be there; empty watches whatever is there.

    """

    def __init__(self, limits: Limits, *, names: Collection[str] = ()) -> None:
        self._limits = limits
        self._names = frozenset(names)
        self._up: dict[tuple[str, Kind], Alarm] = {}
        self._known: dict[str, Slot] = {}
        self._events: dict[tuple[str, Kind], tuple[datetime, Slot, Finding]] = {}
        self._started_at: datetime | None = None
        self._failing_since: datetime | None = None

    @property
    def up(self) -> tuple[Alarm, ...]:
        """Every alarm that is up, the worst first."""
        return tuple(
            sorted(
                self._up.values(),
                key=lambda one: (-one.level, one.slot_name, one.kind),
            )
        )

    def observe(
        self,
        reading: Reading,
        history: History,
        *,
        consumer: tuple[str, Finding] | None = None,
    ) -> tuple[Change, ...]:
        """Judge a reading, and have the history remember it; return what changed.

        ``consumer`` is what the consumer of a slot says of itself, with the slot's
        name, when it has stopped for a reason of its own.

        A slot that is not the one it was begins its history anew. What is raised comes
        before what is cleared: a slot that is lost has no lag any more.
        """
        now = reading.server.at
        self._failing_since = None
        self._compare(reading, history)
        history.observe(reading)
        found = dict(self._findings(reading, history))
        if consumer is not None:
            name, finding = consumer
            slot = next((one for one in reading.slots if one.name == name), None)
            found[name, finding.kind] = (finding, slot)
        return tuple(self._settle(found, now))

    def failed(self, reason: str, now: datetime) -> tuple[Change, ...]:
        """Take note of a reading that failed; everything else stays as it is."""
        self._failing_since = self._failing_since or now
        failing_s = max(0.0, (now - self._failing_since).total_seconds())
        key = (_SERVER, Kind.READING_FAILED)
        before = self._up.get(key)
        level = READING_FAILED.level(failing_s, before.level if before else Level.OK)
        finding = Finding(
            kind=Kind.READING_FAILED,
            level=level,
            text=f"slots cannot be read for {show_seconds(failing_s)}: {reason}",
            remedy="until they can, nobody knows what they hold: see why, and that the"
            " server is up",
        )
        change = self._raise(key, finding, None, now)
        return () if change is None else (change,)

    def _compare(self, reading: Reading, history: History) -> None:
        """Note the slots that have gone, come back, or are not what they were."""
        now, started_at = reading.server.at, reading.server.started_at
        has_restarted = self._started_at not in {None, started_at}
        self._started_at = started_at
        present = {slot.name: slot for slot in reading.slots if not slot.temporary}
        for name, before in self._known.items():
            slot = present.get(name)
            if slot is None:
                self._events.setdefault(
                    (name, Kind.MISSING), (now, before, _missing(name, before))
                )
            elif self._events.pop((name, Kind.MISSING), None) or is_replaced(
                before, slot, has_restarted=has_restarted
            ):
                history.forget(name)
                self._events[name, Kind.REPLACED] = (now, slot, _replaced(before, slot))
        gone = {name: one for name, one in self._known.items() if name not in present}
        self._known = gone | present
        for key, (happened_at, _, _) in list(self._events.items()):
            if (now - happened_at).total_seconds() >= _SHOWN_S:
                del self._events[key]
                if key[1] is Kind.MISSING:
                    self._known.pop(key[0], None)

    def _findings(
        self, reading: Reading, history: History
    ) -> Iterator[tuple[tuple[str, Kind], tuple[Finding, Slot | None]]]:
        for finding in server_health(reading, self._limits, self._levels(_SERVER)):
            yield (_SERVER, finding.kind), (finding, None)
        for slot in reading.slots:
            if self._is_watched(slot.name):
                was, trend = self._levels(slot.name), history.trend(slot)
                for finding in health(reading, slot, trend, self._limits, was):
                    yield (slot.name, finding.kind), (finding, slot)
        for (name, kind), (_, gone, finding) in self._events.items():
            if self._is_watched(name):
                yield (name, kind), (finding, gone)
        for name in self._names - {slot.name for slot in reading.slots}:
            before = self._known.get(name)
            yield (name, Kind.MISSING), (_missing_named(before), before)

    def _is_watched(self, name: str) -> bool:
        return not self._names or name in self._names

    def _settle(
        self,
        found: Mapping[tuple[str, Kind], tuple[Finding, Slot | None]],
        now: datetime,
    ) -> Iterator[Change]:
        for key, (finding, slot) in found.items():
            change = self._raise(key, finding, slot, now)
            if change is not None:
                yield change
        for key in [key for key in self._up if key not in found]:
            alarm = self._up.pop(key)
            yield Change(state=AlarmState.CLEARED, alarm=alarm, was=alarm.level, at=now)

    def _raise(
        self,
        key: tuple[str, Kind],
        finding: Finding,
        slot: Slot | None,
        now: datetime,
    ) -> Change | None:
        """Put an alarm up, with today's numbers; a change only if its level is new."""
        before = self._up.get(key)
        alarm = Alarm(
            kind=finding.kind,
            level=finding.level,
            slot_name=key[0],
            slot_type=slot.slot_type if slot else "",
            database=(slot.database if slot else None) or "",
            text=finding.text,
            remedy=finding.remedy,
            since=before.since if before else now,
        )
        self._up[key] = alarm
        was = before.level if before else Level.OK
        if was == alarm.level:
            return None
        return Change(state=AlarmState.RAISED, alarm=alarm, was=was, at=now)

    def _levels(self, name: str) -> Mapping[Kind, Level]:
        return {
            kind: one.level for (slot, kind), one in self._up.items() if slot == name
        }


def _missing(name: str, before: Slot) -> Finding:
    return Finding(
        kind=Kind.MISSING,
        level=Level.WARNING,
        text=f"dropped; its consumer had confirmed {before.position or 'nothing'}",
        remedy="if nobody meant to, what was committed since is not kept: copy the data"
        f" to the consumer anew, then `slots create {name}`",
    )


def _missing_named(before: Slot | None) -> Finding:
    last = f"; last seen at {before.position}" if before and before.position else ""
    return Finding(
        kind=Kind.MISSING,
        level=Level.CRITICAL,
        text=f"does not exist{last}: what is committed now is not kept",
        remedy="copy the data to the consumer anew and make the slot again, or take its"
        " name off the watch",
    )


def _replaced(before: Slot, now: Slot) -> Finding:
    return Finding(
        kind=Kind.REPLACED,
        level=Level.WARNING,
        text="dropped and made again: what was committed between"
        f" {before.position or 'its beginning'} and {now.position or 'now'} is not kept"
        " for its consumer",
        remedy="compare the consumer's data with the source, and copy what is missing",
    )
