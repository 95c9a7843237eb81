"""One session: connect, lead, claim, check, stream, run the relay, leave in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from cdc.claim import claim, write_position
from cdc.coverage import Coverage
from cdc.errors import CdcError, DecodingFailed
from cdc.intake import Intake
from cdc.keeper import PositionKeeper
from cdc.leadership import lead
from cdc.position import Disagreement
from cdc.relay import Relay
from cdc.requirements import require
from cdc.routes import Routes
from cdc.stream import ReplicationStream
from cdc.wal import pgoutput, wal2json
from slots.catalog import advance_slot
from slots.connect import address, answer_of, connect
from slots.errors import ServerUnavailable, SlotBusy, SlotError
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.claim import Claim
    from cdc.intake import Decoder
    from cdc.metrics import RelayMetrics
    from cdc.outbox import Mapping
    from cdc.position import Position
    from cdc.requirements import SourceFacts, Wanted
    from cdc.sinks import PositionStore, Sink
    from slots.connect import Target

Answer = TypeVar("Answer")

_STATUS_SHARE: Final = 3
"""Status goes out at least this often within the server's wal_sender_timeout."""

_ANSWER_LIMIT_S: Final = 30.0
"""For the catalog and for the start of a stream, on a loaded server too."""

_log = structlog.get_logger("cdc.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the rows come from.

    Attributes:
        name: of the relay, across restarts and clusters.
        target: the server, and how to get in.
        wanted: slot, plugin, publication, tables and columns.
        mapping: how rows become events.
        first_snapshot: a first start publishes the rows there are.
        status_interval_s: at most this long between two status updates.
        window_bytes: events in flight weigh at most this much.
        grace_s: how long acknowledgements are waited for at the end.

    """

    name: str
    target: Target
    wanted: Wanted
    mapping: Mapping
    first_snapshot: bool = False
    status_interval_s: float = 10.0
    window_bytes: int = 32 << 20
    grace_s: float = 10.0


class Session:
    """One attempt to carry rows, from the first connection to the last status.

    Args:
        source: where rows come from.
        sink: where events go; entered and left here.
        store: where positions are kept; likewise.
        metrics: what is counted.
        started: called once the stream runs.

    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        store: PositionStore,
        metrics: RelayMetrics,
        *,
        started: Callable[[], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._store = store
        self._metrics = metrics
        self._started = started
        self._relay: Relay | None = None
        self._coverage = Coverage(
            source.target, source.wanted, interval_s=source.status_interval_s
        )
        self._is_stopping = False
        self.stream: ReplicationStream | None = None

    @property
    def place(self) -> str:
        """Where in the WAL it is, for a message about a failure there."""
        if self._relay is None:
            return ""
        begun = self._relay.open_transaction
        if begun is not None:
            return f"transaction {begun.xid} that commits at {begun.commit_lsn}"
        return f"what follows {self._relay.confirmed}"

    @property
    def horizon(self) -> int | None:
        """Rows of transactions older than this are acknowledged; None: not certain."""
        if self._relay is None or not self._relay.is_on_our_history:
            return None
        return self._relay.position.horizon

    def stop(self) -> None:
        """Drain and end; a session that does not stream yet ends at once."""
        self._is_stopping = True
        if self._relay is not None:
            self._relay.stop(grace_s=self._source.grace_s)

    async def run(self) -> None:
        """Carry until stopped; raise what ended it otherwise."""
        source = self._source
        async with AsyncExitStack() as stack:
            connection = await connect(source.target)
            stack.push_async_callback(connection.close)
            line = await connect(source.target, replication=True)
            stack.push_async_callback(line.close)
            # Where a broker is away nothing is held: the lock and the slot are free
            # for another relay while this one pauses.
            await self._answer(lead(line, source.name), line)
            await stack.enter_async_context(self._store)
            for made in await self._store.make():
                _log.warning("position_store_made", what=made)
            begun = await self._answer(self._claim(connection, line), line)
            facts = await self._answer(require(connection, source.wanted), connection)
            if facts.slot.active:
                raise _busy(facts)
            if begun is None:
                # The slot has come into being between two questions.
                raise ServerUnavailable(f"slot {facts.slot.name} was just made")
            await stack.enter_async_context(self._sink)
            stream = await stack.enter_async_context(
                ReplicationStream(
                    line,
                    publication=self._publication(),
                    status_interval_s=self._interval_s(facts),
                )
            )
            position = facts.slot.confirmed_flush_lsn or ZERO
            start = stream.start(source.wanted.slot, self._options(facts), at=position)
            await self._answer(start, line)
            self.stream = stream
            self._metrics.sessions.inc()
            self._metrics.confirmed(position)
            keeper = PositionKeeper(self._store, begun.position)
            self._relay = Relay(
                stream=stream,
                intake=self._intake(facts, connection, begun),
                sink=self._sink,
                keeper=keeper,
                metrics=self._metrics,
                window_bytes=source.window_bytes,
            )
            self._started()
            if not self._is_stopping:
                await self._carry(self._relay, facts, keeper)

    async def _claim(
        self, connection: AsyncConnection[TupleRow], line: AsyncConnection[TupleRow]
    ) -> Claim | None:
        source = self._source
        return await claim(
            connection,
            line,
            self._store,
            source.wanted,
            source.name,
            with_snapshot=source.first_snapshot,
        )

    def _intake(
        self,
        facts: SourceFacts,
        connection: AsyncConnection[TupleRow],
        begun: Claim,
    ) -> Intake:
        async def covered() -> None:
            looking = self._coverage.look(connection, begun.position)
            await self._answer(looking, connection)

        mapping = replace(self._source.mapping, epoch=begun.position.epoch)
        routes = Routes(mapping, facts, connection, covered)
        return Intake(self._decoder(facts), routes, self._metrics, begun.gate)

    async def _carry(
        self, relay: Relay, facts: SourceFacts, keeper: PositionKeeper
    ) -> None:
        try:
            await self._covered(relay, facts, keeper)
        except DecodingFailed as exc:
            await self._advance(relay)
            raise self._located(exc, relay) from exc
        except Disagreement as exc:
            if not exc.is_same_history:
                await self._doubt(exc, keeper.position)
            raise

    async def _doubt(self, exc: Disagreement, position: Position) -> None:
        """Leave word that this history is not ours: the stored horizon is void on it.

        What the stream has shown cannot be seen from the catalog next time.
        """
        try:
            await write_position(self._store, replace(position, doubt=str(exc)))
        except (CdcError, SlotError) as failed:
            _log.warning("doubt_not_stored", reason=str(failed))

    async def _covered(
        self, relay: Relay, facts: SourceFacts, keeper: PositionKeeper
    ) -> None:
        """Run the relay and the look at the catalog until one of them ends both."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = self._coverage.watch(facts, keeper)
                watcher = group.create_task(watching, name="coverage")
                await relay.run(grace_s=self._source.grace_s)
                watcher.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _located(self, exc: DecodingFailed, relay: Relay) -> DecodingFailed:
        """Say where it failed, and how to give up that one transaction."""
        begun = relay.open_transaction
        if begun is None:
            return exc
        # A transaction is sent unless it commits below the slot's position.
        behind = Lsn(begun.commit_lsn + 1)
        return DecodingFailed(
            str(exc),
            commit_lsn=begun.commit_lsn,
            hint=f"shrink what it holds where you can; to give up transaction"
            f" {begun.xid} and all of its events: cdc adopt --accept-gap {behind}",
        )

    async def _advance(self, relay: Relay) -> None:
        """Tell the server what is acknowledged after the stream has broken off.

        The server fails at the same transaction again and again. What came before it
        must not be sent each time, and the stream that could tell the position is gone.
        """
        try:
            async with await connect(self._source.target) as connection:
                await advance_slot(
                    connection, self._source.wanted.slot, relay.confirmed
                )
        except SlotError as exc:
            _log.warning("position_not_told", reason=str(exc))

    async def _answer(
        self,
        question: Coroutine[Any, Any, Answer],
        connection: AsyncConnection[TupleRow],
    ) -> Answer:
        """Await a server's answer; a silent one is cut off, not waited for."""
        return await answer_of(
            question,
            connection,
            limit_s=_ANSWER_LIMIT_S,
            where=address(self._source.target),
        )

    def _interval_s(self, facts: SourceFacts) -> float:
        timeout_s = facts.wal_sender_timeout_s
        if timeout_s <= 0:
            return self._source.status_interval_s
        return min(self._source.status_interval_s, timeout_s / _STATUS_SHARE)

    def _publication(self) -> str | None:
        wanted = self._source.wanted
        return wanted.publication if wanted.plugin == "pgoutput" else None

    def _decoder(self, facts: SourceFacts) -> Decoder:
        if self._source.wanted.plugin == "pgoutput":
            return pgoutput.Decoder(facts.bytea_types)
        return wal2json.Decoder(facts.bytea_types)

    def _options(self, facts: SourceFacts) -> dict[str, str]:
        wanted = self._source.wanted
        if wanted.plugin == "pgoutput":
            return pgoutput.options(wanted.publication)
        # A leaf of a partitioned table has a name that nobody can list beforehand.
        tables = () if facts.partitioned else wanted.tables
        return wal2json.options([(table.schema, table.name) for table in tables])


def _busy(facts: SourceFacts) -> SlotBusy:
    slot = facts.slot
    return SlotBusy(
        f"slot {slot.name} is in use by pid {slot.active_pid}"
        f" ({slot.active_application or 'unnamed'},"
        f" {slot.active_address or 'local'})",
        hint="it is left alone; this relay takes over when it is free",
    )
