"""Does the server agree with what was stored: its history, the slot, the publication.

Judged at every connect, before anything is read from the slot (rule 7). Any of these
answers is for an operator: the relay neither guesses nor goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc.position.causes import WAL_REMOVED, Cause, SlotGone, mismatch
from cdc.position.horizon import horizon_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdc.position.causes import Disagreement, PositionMismatch
    from cdc.position.record import Position
    from slots.lsn import Lsn

_MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen:
    """The slot's row, as far as it matters here.

    Attributes:
        confirmed: None while the slot is being made.
        is_lost: its WAL is gone.
        reason: why, in the server's word; empty before Postgres 17.
        is_copy: a standby's copy of its primary's slot, which nobody can read.

    """

    confirmed: Lsn | None
    is_lost: bool = False
    reason: str = ""
    is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the server says of itself when a session starts.

    Attributes:
        system_id: of the cluster.
        timeline: the one it writes on.
        switches: for each earlier timeline of its history, where it was left.
        wal_position: the end of its WAL.
        database: the one connected to.
        slot: None when there is none.
        fingerprint: what the publication is made of now.
        is_standby: it may be promoted any moment.

    """

    system_id: str
    timeline: int
    wal_position: Lsn
    database: str
    slot: SlotSeen | None
    switches: Mapping[int, Lsn] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    is_standby: bool = False


def waits_for_promotion(position: Position, seen: Seen) -> str:
    """Return why this standby cannot be judged yet; empty for a server that can.

    A failover may lead here before it is over. A standby with a slot of its own, which
    has all that the relay has had, can be streamed from.
    """
    if not seen.is_standby or seen.system_id != position.system_id:
        return ""
    if seen.wal_position < position.end_lsn:
        return f"has WAL up to {seen.wal_position}, and {position.end_lsn} is needed"
    if seen.slot is None:
        return f"has no slot {position.slot}"
    if seen.slot.is_copy:
        return f"has a copy of slot {position.slot}, which cannot be read"
    return ""


def history_end(position: Position, seen: Seen) -> Lsn:
    """Return how far the stored history goes on this server.

    That is the stored position, or the point at which the server's timeline left ours:
    WAL lost behind it had no events in it, or the anchor would not be met.
    """
    switch = _switch(position, seen)
    return position.end_lsn if switch is None else min(position.end_lsn, switch)


def agree(position: Position, seen: Seen) -> None:
    """Return when a session may start; what the stream has to prove is the gate's.

    Raises:
        SlotGone: the slot was dropped or invalidated.
        PositionMismatch: anything else that an operator has to judge.

    """
    for found in _disagreements(position, seen):
        raise found


def _disagreements(position: Position, seen: Seen) -> Iterator[Disagreement]:
    slot = seen.slot
    at = None if slot is None or slot.is_lost else slot.confirmed
    yield from _identity(position, seen, at)
    if position.doubt:
        yield mismatch(position, Cause.DOUBT, position.doubt, goes_on_at=at)
    yield from _history(position, seen, at)
    if position.unfinished is not None:
        yield mismatch(
            position,
            Cause.UNFINISHED,
            f"resnapshot {position.unfinished.run_id} has not come to its end",
            goes_on_at=at,
        )
    yield from _slot(position, seen)
    yield from _publication(position, seen, at)


def _identity(position: Position, seen: Seen, at: Lsn | None) -> Iterator[Disagreement]:
    if seen.system_id != position.system_id:
        yield mismatch(
            position,
            Cause.CLUSTER,
            f"relay {position.name} left cluster {position.system_id} at"
            f" {position.end_lsn}; this server is of cluster {seen.system_id}",
            goes_on_at=at,
        )
    if seen.database != position.database:
        yield mismatch(
            position,
            Cause.DATABASE,
            f"relay {position.name} reads database {position.database}, not"
            f" {seen.database}",
            goes_on_at=at,
        )


def _history(position: Position, seen: Seen, at: Lsn | None) -> Iterator[Disagreement]:
    if seen.timeline == position.timeline:
        if seen.wal_position < position.end_lsn:
            yield mismatch(
                position,
                Cause.BEHIND,
                f"the server's WAL ends at {seen.wal_position}, before"
                f" {position.end_lsn} where this relay is: it was restored, or lost"
                " what was committed last",
                goes_on_at=at,
            )
        return
    switch = _switch(position, seen)
    if switch is None:
        yield mismatch(
            position,
            Cause.TIMELINE,
            f"the server is on timeline {seen.timeline}, which does not come from"
            f" timeline {position.timeline} where this relay is: the old primary, or a"
            " restored backup",
            goes_on_at=at,
        )
    elif position.anchor is not None and position.anchor.end_lsn > switch:
        yield mismatch(
            position,
            Cause.TIMELINE,
            f"timeline {position.timeline} was left at {switch}, before the last"
            f" event delivered (ends at {position.anchor.end_lsn}): the promoted server"
            " never had what consumers have seen",
            goes_on_at=at,
        )


def _slot(position: Position, seen: Seen) -> Iterator[Disagreement]:
    slot = seen.slot
    if slot is None:
        yield SlotGone(
            f"slot {position.slot} does not exist any more{_promotion(position, seen)};"
            f" this relay left it at {position.end_lsn}",
            cause=Cause.DROPPED,
            position=position,
            wal_bytes=seen.wal_position - position.end_lsn,
        )
    elif slot.is_lost:
        reason = f" ({slot.reason})" if slot.reason else ""
        yield SlotGone(
            f"slot {position.slot} is lost{reason}: the WAL behind {position.end_lsn}"
            f" is gone{_advice(position, seen, slot)}",
            cause=Cause.INVALIDATED,
            reason=slot.reason or WAL_REMOVED,
            position=position,
            wal_bytes=seen.wal_position - position.end_lsn,
        )
    elif slot.confirmed is not None and slot.confirmed > history_end(position, seen):
        yield mismatch(
            position,
            Cause.MOVED,
            f"slot {position.slot} stands at {slot.confirmed}, beyond"
            f" {history_end(position, seen)} where this relay left it: it was advanced,"
            " made anew, or read by somebody else",
            goes_on_at=slot.confirmed,
        )


def _promotion(position: Position, seen: Seen) -> str:
    """Say that a slot is missing for a reason that is not somebody's drop."""
    if seen.timeline == position.timeline:
        return ""
    return f" (a standby without it was promoted, to timeline {seen.timeline})"


def _advice(position: Position, seen: Seen, slot: SlotSeen) -> str:
    """Say what limit would have been enough, by the WAL written since."""
    if slot.reason not in ("", WAL_REMOVED):
        return ""
    needed = (seen.wal_position - position.end_lsn) * 3 // 2
    return f"; raise max_slot_wal_keep_size to at least {needed // _MB + 1}MB"


def _publication(
    position: Position, seen: Seen, at: Lsn | None
) -> Iterator[Disagreement]:
    changed = changed_publication(position, seen.fingerprint, goes_on_at=at)
    if changed is not None:
        yield changed


def changed_publication(
    position: Position, fingerprint: Mapping[str, str], *, goes_on_at: Lsn | None
) -> PositionMismatch | None:
    """Return the error for a publication that is not as it was, None for one that is.

    It was last seen whole with the newest sample.
    """
    changed = changed_parts(position.fingerprint, fingerprint)
    if not changed:
        return None
    since = position.samples[-1].lsn if position.samples else position.end_lsn
    return mismatch(
        position,
        Cause.PUBLICATION,
        f"{' and '.join(changed)}: changed in the publication, or taken out and put"
        f" back, since {since}; rows committed in between may never arrive",
        goes_on_at=goes_on_at,
    )


def continued(position: Position, seen: Seen) -> Position:
    """Return the position as it goes on, with the server it has agreed with.

    Across a promotion it goes back to where the timelines part: what was sampled behind
    that point told of transactions that the new primary has never had. A part that the
    publication lacks is remembered as it was: the checks that follow refuse to start
    without it, and once it is put back, rows from in between are missing.
    """
    end_lsn = history_end(position, seen)
    horizon, samples = position.horizon, position.samples
    if seen.timeline != position.timeline:
        switch = _switch(position, seen)
        samples = tuple(one for one in samples if switch is None or one.lsn <= switch)
        horizon = horizon_at(replace(position, samples=samples), end_lsn)
    return replace(
        position,
        term=position.term + 1,
        system_id=seen.system_id,
        timeline=seen.timeline,
        end_lsn=end_lsn,
        horizon=horizon,
        samples=samples,
        fingerprint={**position.fingerprint, **seen.fingerprint},
    )


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what is not as it was; a part that is new or not asked for any more is."""
    return [part for part in before if part in now and now[part] != before[part]]


def _switch(position: Position, seen: Seen) -> Lsn | None:
    return seen.switches.get(position.timeline)
