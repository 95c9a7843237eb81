"""The beginning of every session: what is stored, does the server agree, a new term.

Asked with the lock held and before anything is read from the slot.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cdc.errors import FirstStart, OperatorNeeded, RequirementMissing
from cdc.position import (
    Gate,
    Position,
    agree,
    continued,
    history_end,
    parse,
    waits_for_promotion,
)
from cdc.requirements.history import see
from cdc.sinks import Kept
from slots.errors import ServerUnavailable
from slots.lsn import ZERO

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.position import Seen
    from cdc.requirements import Wanted
    from cdc.sinks import PositionStore

_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A term that has begun.

    Attributes:
        position: as stored under the new term.
        gate: judges what the stream brings before it is new; None when there is
            nothing to judge by.

    """

    position: Position
    gate: Gate | None


async def stored_position(store: PositionStore, name: str) -> Position | None:
    """Return what is stored for a relay, None when nothing is.

    Raises:
        OperatorNeeded: what is stored cannot be read.

    """
    kept = await store.read(name)
    if kept is None:
        return None
    try:
        return replace(parse(kept.document), term=kept.term)
    except ValueError as exc:
        raise OperatorNeeded(
            f"the stored position of relay {name} cannot be read: {exc}",
            hint="run the version of walferry that wrote it, or compare the table with"
            " the broker and then: cdc adopt",
        ) from exc


async def claim(
    connection: AsyncConnection[TupleRow],
    line: AsyncConnection[TupleRow],
    store: PositionStore,
    wanted: Wanted,
    name: str,
    *,
    with_snapshot: bool,
) -> Claim | None:
    """Begin a term, unless the server disagrees with what is stored.

    Args:
        connection: an ordinary one.
        line: the replication connection that holds the lock.
        store: entered.
        wanted: slot, publication and tables.
        name: of the relay.
        with_snapshot: a first start is to publish the rows there are.

    Returns:
        None when nothing is stored and there is no slot to begin with.

    Raises:
        ServerUnavailable: a standby that has yet to be promoted.
        SlotGone, PositionMismatch: see :func:`cdc.position.agree`.
        OperatorNeeded: what is stored cannot be read.
        FirstStart: nothing is stored, and the slot is to be made with a snapshot.
        RequirementMissing: likewise, and somebody has made a slot already.

    """
    known = await stored_position(store, name)
    seen = await see(connection, line, wanted)
    slot = seen.slot
    if known is not None:
        refuse_standby(known, seen)
        agree(known, seen)
        position = replace(
            continued(known, seen), slot=wanted.slot, plugin=wanted.plugin
        )
    elif with_snapshot:
        raise _first_start(wanted, seen)
    elif slot is None or slot.is_lost:
        return None
    else:
        position = first_position(name, wanted, seen)
    start = position.end_lsn if slot is None else slot.confirmed or ZERO
    position = await write_position(store, position)
    if known is None:
        return Claim(position=position, gate=None)
    gate = Gate(known, start=start, end_lsn=history_end(known, seen))
    return Claim(position=position, gate=None if gate.is_open else gate)


def refuse_standby(known: Position, seen: Seen) -> None:
    """Raise ServerUnavailable for a standby that has yet to be promoted."""
    waits = waits_for_promotion(known, seen)
    if waits:
        raise ServerUnavailable(
            f"the server is a standby: it {waits}",
            hint="it is waited for; to reach the primary, name every host in the DSN"
            " and target_session_attrs=read-write",
        )


def _first_start(wanted: Wanted, seen: Seen) -> FirstStart | RequirementMissing:
    if seen.slot is None:
        return FirstStart(f"slot {wanted.slot} is made with a snapshot of the outbox")
    return RequirementMissing(
        f"slot {wanted.slot} exists, and no position of this relay: rows from before"
        " the slot would be left out, and only making it exports a snapshot",
        hint=f"CDC_SNAPSHOT=never, or: slots drop {wanted.slot}",
    )


def first_position(name: str, wanted: Wanted, seen: Seen) -> Position:
    """Return the position of a relay that has none: where its slot is."""
    slot = seen.slot
    return Position(
        name=name,
        term=1,
        epoch=0,
        system_id=seen.system_id,
        timeline=seen.timeline,
        database=seen.database,
        slot=wanted.slot,
        plugin=wanted.plugin,
        end_lsn=(slot and slot.confirmed) or ZERO,
        fingerprint=seen.fingerprint,
    )


async def write_position(store: PositionStore, position: Position) -> Position:
    """Store a position as of now; return it as stored."""
    position = replace(position, stored_at_ms=time.time_ns() // _NS_PER_MS)
    await store.write(Kept(position.name, position.term, position.document()))
    return position
