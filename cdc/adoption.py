"""The operator's word: take the server as it is, or give up what lies in a gap.

Either is one command that has to be typed each time; no setting does it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc.claim import (
    first_position,
    refuse_standby,
    stored_position,
    write_position,
)
from cdc.errors import OperatorNeeded, RequirementMissing
from cdc.leadership import LOCK_PATIENCE_S, lead
from cdc.position import Cause, Disagreement, agree, continued, mismatch
from cdc.proof import contradiction
from cdc.recovery_plan import doubt_about
from cdc.requirements.history import see
from slots.catalog import advance_slot, create_slot, drop_slot
from slots.connect import connect
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.position import Position, Seen
    from cdc.session import Source
    from cdc.sinks import PositionStore

_SLOT_TIMEOUT_S = 60.0
_FAILOVER_SINCE = 170000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What is stored, what is there, and what is wrong between the two."""

    known: Position
    seen: Seen
    found: Disagreement | None

    @property
    def slot_at(self) -> Lsn | None:
        """Where the slot is; None when there is none to stream from."""
        slot = self.seen.slot
        return None if slot is None or slot.is_lost else slot.confirmed


async def adopt(
    source: Source, store: PositionStore, *, accept_gap: Lsn | None
) -> list[str]:
    """Make the stored position agree with the server; say what was done.

    Args:
        source: slot, publication, tables.
        store: not entered yet.
        accept_gap: None takes another cluster or history as it is, and raises the
            epoch. On the same history it is the position that the relay's message
            names: where streaming goes on, or where it left off when the slot is gone
            and has to be made anew. A position ahead of the slot gives up what commits
            before it.

    Raises:
        OperatorNeeded: it is not what the situation asks for; the hint has the command.
        RequirementMissing: nothing is stored, or there is no slot to go on with.
        SlotBusy: a relay of this name runs.

    """
    async with AsyncExitStack() as stack:
        connection = await connect(source.target)
        stack.push_async_callback(connection.close)
        line = await connect(source.target, replication=True)
        stack.push_async_callback(line.close)
        await lead(line, source.name, patience_s=LOCK_PATIENCE_S)
        await stack.enter_async_context(store)
        case = await _case(connection, line, source, store)
        if accept_gap is not None:
            position, done = await _gap(connection, source, case, accept_gap)
        else:
            position, done = _cluster(source, case)
        await write_position(store, replace(position, recovered=()))
        return done


async def _case(
    connection: AsyncConnection[TupleRow],
    line: AsyncConnection[TupleRow],
    source: Source,
    store: PositionStore,
) -> _Case:
    known = await stored_position(store, source.name)
    if known is None:
        raise RequirementMissing(
            f"no position is stored for relay {source.name}: there is nothing to adopt",
            hint="`cdc run` begins where its slot is",
        )
    seen = await see(connection, line, source.wanted)
    refuse_standby(known, seen)
    found = None
    try:
        agree(known, seen)
    except Disagreement as exc:
        found = await _judged(connection, exc)
    return _Case(known=known, seen=seen, found=found)


async def _judged(
    connection: AsyncConnection[TupleRow], found: Disagreement
) -> Disagreement:
    """Return what is wrong: a slot that is not ours may be on a server that is not.

    A restored backup that has been written on looks like one whose slot was dropped.
    """
    if not found.is_same_history:
        return found
    against = await contradiction(connection, found.position)
    if not against:
        return found
    return mismatch(
        found.position,
        Cause.DOUBT,
        f"this server's history is another one: {against}",
        goes_on_at=found.goes_on_at,
    )


def _cluster(source: Source, case: _Case) -> tuple[Position, list[str]]:
    """Begin a new epoch on a history that is not the one stored."""
    known, found = case.known, case.found
    if found is None:
        raise OperatorNeeded(
            f"server and stored position agree ({known.end_lsn}): nothing to adopt",
            hint="to give up what commits before a position ahead of it:"
            " cdc adopt --accept-gap LSN",
        )
    if found.is_same_history:
        raise found
    if case.slot_at is None:
        raise RequirementMissing(
            f"slot {source.wanted.slot} is not there to go on with",
            hint="make it, then adopt: slots create"
            f" {source.wanted.slot} --plugin {source.wanted.plugin}",
        )
    position = replace(
        first_position(source.name, source.wanted, case.seen),
        term=known.term + 1,
        epoch=known.epoch + 1,
    )
    now = f"cluster {position.system_id}, timeline {position.timeline}"
    return position, [
        f"epoch {known.epoch} ended at {known.end_lsn} on cluster {known.system_id}",
        f"epoch {position.epoch} begins at {position.end_lsn} on {now}",
        "rows committed before that are not in the stream: cdc replay --since TIME",
    ]


async def _gap(
    connection: AsyncConnection[TupleRow], source: Source, case: _Case, lsn: Lsn
) -> tuple[Position, list[str]]:
    """Go on behind a gap on the same history."""
    known, found = case.known, case.found
    if found is not None and not found.is_same_history:
        raise found
    slot = source.wanted.slot
    if case.slot_at is None:
        _expect(lsn, known.end_lsn, "this relay left the slot")
        begins = await _new_slot(connection, source, case)
        done = [f"slot {slot} made anew, it begins at {begins}"]
    else:
        if lsn < case.slot_at:
            _expect(lsn, case.slot_at, f"slot {slot} stands")
        if lsn > case.seen.wal_position:
            raise OperatorNeeded(
                f"{lsn} is beyond the end of the WAL, {case.seen.wal_position}",
                hint="name a position that has been written",
            )
        begins = max(case.slot_at, await advance_slot(connection, slot, lsn))
        done = [f"slot {slot} goes on at {begins}"]
    done.append(
        f"what committed behind {known.end_lsn} and before {begins} is given up"
    )
    if await doubt_about(connection, known, case.seen, source):
        # Nobody can tell whether it is our history: its horizon is not to be used.
        known = replace(known, horizon=None, samples=())
    position = replace(
        continued(known, case.seen),
        slot=slot,
        plugin=source.wanted.plugin,
        end_lsn=max(begins, ZERO),
        given_up=begins,
        unfinished=None,
    )
    return position, done


def _expect(lsn: Lsn, right: Lsn, what: str) -> None:
    if lsn != right:
        raise OperatorNeeded(
            f"{what} at {right}, not at {lsn}",
            hint=f"if that is the gap you mean: cdc adopt --accept-gap {right}",
        )


async def _new_slot(
    connection: AsyncConnection[TupleRow], source: Source, case: _Case
) -> Lsn:
    wanted = source.wanted
    if case.seen.slot is not None:
        await drop_slot(connection, wanted.slot)
    return await create_slot(
        connection,
        wanted.slot,
        plugin=wanted.plugin,
        failover=connection.info.server_version >= _FAILOVER_SINCE,
        timeout_s=_SLOT_TIMEOUT_S,
    )
