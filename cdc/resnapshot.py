"""A slot made anew, and the rows that may have been missed with the one before.

The new slot comes with an exported snapshot: rows committed before its consistent point
are read from the table, the stream has the rest, without a gap and without an overlap.
What is published carries ``cdc.replay``, and only what the sink does not hold already.

That a resnapshot is under way is stored before the first step, so that after a crash it
is gone through again, and the slot it had made is known for its own.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import structlog

from cdc.claim import write_position
from cdc.fresh_slot import make_slot, overlap_of
from cdc.known_ids import KnownIds
from cdc.leadership import LOCK_PATIENCE_S, holding, lead
from cdc.position import Cause, Position, Sample, SlotGone, Unfinished
from cdc.recovery_plan import Plan, plan_recovery
from cdc.republishing import Progress, Republisher
from cdc.requirements.history import fingerprint
from cdc.snapshot import open_snapshot
from slots.catalog import drop_slot, get_slot
from slots.connect import address, answer_of, connect
from slots.errors import SlotBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.session import Source
    from cdc.sinks import PositionStore, ReadBack, Sink
    from cdc.snapshot import Snapshot
    from slots.lsn import Lsn

_ANSWER_LIMIT_S: Final = 60.0
_PAUSE_S: Final = 0.2
_NS_PER_MS: Final = 1_000_000

_log = structlog.get_logger("cdc.resnapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for.

    Attributes:
        bounds: ``since``: a time, an id or an LSN; or ``all``; empty for the stored
            horizon.
        may_drop: the slot may be dropped and made anew.
        dry_run: only count.
        slot_timeout_s: how long the new slot may wait for open transactions.
        answers: the cause that is answered automatically; empty for an operator.

    """

    bounds: Mapping[str, str]
    may_drop: bool = False
    dry_run: bool = False
    slot_timeout_s: float = 60.0
    answers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a resnapshot did.

    Attributes:
        progress: rows and bytes.
        plan: what it went by.
        begins_at: where the new slot begins; None for a dry run.
        seconds: how long the publishing took.

    """

    progress: Progress
    plan: Plan
    begins_at: Lsn | None
    seconds: float

    def window(self) -> str:
        """Say between which positions and times rows may have come and gone."""
        left = self.plan.lost_from
        if left is None:
            return "another history"
        since = datetime.fromtimestamp(self.plan.position.stored_at_ms / 1000, UTC)
        return f"{left} to {self.begins_at}, since {since:%Y-%m-%d %H:%M:%S} UTC"

    def facts(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "looked_at": self.progress.rows,
            "present": self.progress.present,
            "published": self.progress.published,
            "bytes": self.progress.size_bytes,
            "seconds": round(self.seconds, 3),
            "begins_at": self.begins_at and str(self.begins_at),
            "lost_from": self.plan.lost_from and str(self.plan.lost_from),
            "window": self.window(),
        }


class Resnapshot:
    """One resnapshot, from the lock to the stored position.

    Args:
        source: where rows come from.
        sink: where they go; entered and left here.
        store: where the position is kept; likewise.
        read_back: tells what the sink holds; None when nothing can.
        request: what is asked for.
        told: called with the progress now and then.

    Attributes:
        report: what was done, once it is.

    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        store: PositionStore,
        read_back: ReadBack | None,
        *,
        request: Request,
        told: Callable[[Progress], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._store = store
        self._read_back = read_back
        self._request = request
        self._told = told
        self._task: asyncio.Task[Any] | None = None
        self.report: Report | None = None

    @property
    def place(self) -> str:
        """Nowhere in the WAL."""
        return ""

    def stop(self) -> None:
        """Give up; it is gone through again next time."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Do it.

        Raises:
            SlotBusy: a relay of this name runs, or somebody streams from the slot.
            OperatorNeeded: it needs a word that was not given; the hint says which.
            SlotNotReady: open transactions hold the new slot up; the hint lists them.
            SlotGone: the new slot was lost while rows were published.

        """
        self._task = asyncio.current_task()
        source = self._source
        async with AsyncExitStack() as stack:
            connection = await connect(source.target)
            stack.push_async_callback(connection.close)
            line = await connect(source.target, replication=True)
            stack.push_async_callback(line.close)
            await lead(line, source.name, patience_s=LOCK_PATIENCE_S)
            await stack.enter_async_context(holding(line))
            await stack.enter_async_context(self._store)
            plan = await self._plan(connection, line)
            if self._request.dry_run:
                self.report = await self._count(plan, connection)
                return
            await stack.enter_async_context(self._sink)
            self.report = await self._carry(plan, connection)

    async def _plan(
        self, connection: AsyncConnection[TupleRow], line: AsyncConnection[TupleRow]
    ) -> Plan:
        return await plan_recovery(
            connection,
            line,
            self._store,
            self._source,
            bounds=self._request.bounds,
        )

    async def _count(self, plan: Plan, connection: AsyncConnection[TupleRow]) -> Report:
        async with open_snapshot(connection, None) as snapshot:
            return await self._publish(plan, snapshot, sink=None, run_id="dry-run")

    async def _carry(self, plan: Plan, connection: AsyncConnection[TupleRow]) -> Report:
        # Before a word is stored: who goes on with an attempt need not be told again.
        is_there = await self._let_go(plan, connection)
        run_id, position = await self._begin(plan)
        if is_there:
            await drop_slot(connection, self._source.wanted.slot)
        now_ms = time.time_ns() // _NS_PER_MS
        async with await connect(self._source.target, replication=True) as exporter:
            begins_at, name = await make_slot(
                exporter,
                connection,
                self._source.wanted,
                timeout_s=self._request.slot_timeout_s,
            )
            async with open_snapshot(connection, name) as snapshot:
                overlap = None if name else await overlap_of(connection)
                report = await self._publish(
                    plan, snapshot, sink=self._sink, run_id=run_id
                )
                taken = Sample(snapshot.xmin, snapshot.xmax, begins_at, now_ms)
        position = replace(
            position,
            end_lsn=begins_at,
            overlap=overlap,
            horizon=taken.xmin,
            samples=(*position.samples, taken),
            unfinished=None,
            doubt="",
            fingerprint=await fingerprint(connection, self._source.wanted),
        )
        position = await write_position(self._store, position)
        await self._still_there(connection, position)
        return replace(report, begins_at=begins_at)

    async def _begin(self, plan: Plan) -> tuple[str, Position]:
        """Leave word that a resnapshot is under way."""
        known, answers = plan.position, self._request.answers
        begun = known.unfinished or Unfinished(
            run_id=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
            bounds=plan.bounds_given,
            began_at_ms=time.time_ns() // _NS_PER_MS,
        )
        recovered = tuple(dict.fromkeys((*known.recovered, answers)))
        position = replace(
            known,
            term=known.term + 1,
            unfinished=begun,
            recovered=recovered if answers else (),
        )
        return begun.run_id, await write_position(self._store, position)

    async def _let_go(self, plan: Plan, connection: AsyncConnection[TupleRow]) -> bool:
        """Tell whether there is a slot to drop, once nobody streams from it.

        What a killed attempt was making is in use until the server notices, and it does
        not while it waits for open transactions.

        Raises:
            OperatorNeeded: nobody has said that it may be dropped.
            SlotBusy: it stays in use.

        """
        name = self._source.wanted.slot
        patience_s = self._request.slot_timeout_s if plan.is_ours else LOCK_PATIENCE_S
        deadline = time.monotonic() + patience_s
        while (slot := await get_slot(connection, name)) is not None:
            plan.refuse_drop(told=self._request.may_drop)
            if not slot.active:
                return True
            if time.monotonic() >= deadline:
                raise SlotBusy(
                    f"slot {name} is in use by pid {slot.active_pid}",
                    hint="stop who streams from it, then go on with: cdc resnapshot",
                )
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _publish(
        self, plan: Plan, snapshot: Snapshot, *, sink: Sink | None, run_id: str
    ) -> Report:
        source = self._source
        began_at = time.monotonic()
        async with AsyncExitStack() as stack:
            read_back = self._read_back if plan.ids_are_unique else None
            if read_back is not None:
                await stack.enter_async_context(read_back)
            known = stack.enter_context(
                KnownIds(read_back, since_ms=plan.read_back_from_ms)
            )
            republisher = Republisher(
                sink, known, window_bytes=source.window_bytes, told=self._told
            )
            republisher.progress.total = await snapshot.count(
                source.wanted, source.mapping, plan.bounds
            )
            pieces = snapshot.events(
                source.wanted, source.mapping, plan.bounds, run_id=run_id
            )
            progress = await republisher.publish(pieces)
        return Report(
            progress=progress,
            plan=plan,
            begins_at=None,
            seconds=time.monotonic() - began_at,
        )

    async def _still_there(
        self, connection: AsyncConnection[TupleRow], position: Position
    ) -> None:
        """Raise SlotGone when the new slot was lost while rows were published."""
        asking = get_slot(connection, position.slot)
        slot = await answer_of(
            asking,
            connection,
            limit_s=_ANSWER_LIMIT_S,
            where=address(self._source.target),
        )
        if slot is None or slot.is_lost:
            raise SlotGone(
                f"slot {position.slot} was lost again while rows were published: raise"
                " max_slot_wal_keep_size first",
                cause=Cause.INVALIDATED,
                position=position,
            )
