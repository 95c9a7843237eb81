"""One snapshot of the database, and the outbox rows in it."""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import pq, sql

from cdc.errors import SettingsError
from cdc.snapshot.asking import SCAN_LIMIT_S, bounded
from cdc.snapshot.bounds import EventId
from cdc.snapshot.query import Clock, Found, Picked, counting, finding, reading
from cdc.snapshot.rows import PIECE_BYTES, pieces
from cdc.snapshot.tables import grant_select, outbox_tables
from slots.connect import translated
from slots.errors import PermissionDenied, ServerRefused, SlotError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import Event, Mapping
    from cdc.requirements import Wanted
    from cdc.snapshot.bounds import Bounds, Since
    from cdc.snapshot.tables import OutboxTable

_NS_PER_MS: Final = 1_000_000
_TIME_COLUMN: Final = "created_at"

_KNOWN: Final = """
SELECT pg_catalog.pg_snapshot_xmin(s)::text, pg_catalog.pg_snapshot_xmax(s)::text,
       pg_catalog.current_setting('track_commit_timestamp') = 'on', current_user::text
  FROM pg_catalog.pg_current_snapshot() AS s
"""


class Snapshot:
    """The outbox at one moment, for as long as the transaction is open.

    Its connection can be used by nobody else meanwhile.

    Attributes:
        xmin: every transaction below it had ended; full ids, as ``xid8`` has them.
        xmax: none from it on had.

    """

    def __init__(self, connection: AsyncConnection[TupleRow], known: TupleRow) -> None:
        self._connection = connection
        self.xmin = int(known[0])
        self.xmax = int(known[1])
        self._clock = Clock(xmax=self.xmax, tracks_commits=known[2])
        self._role: str = known[3]

    async def count(
        self,
        wanted: Wanted,
        mapping: Mapping,
        bounds: Bounds,
        *,
        time_column: str = _TIME_COLUMN,
    ) -> int:
        """Return how many rows are inside the bounds, in all tables together.

        Raises:
            SettingsError: a bound names an event that is not there, or is not one.
            RequirementMissing: a table is missing, or tells no time.
            SlotError: we may not read it; the hint is the statement that lets us.

        """
        total = 0
        tables = await self._tables(wanted, mapping, time_column)
        picked = await self._picked(tables, bounds, time_column)
        for table in tables:
            with self._named(table, bounds):
                query = counting(table, picked)
                (count,) = await self._one(query, limit_s=SCAN_LIMIT_S) or (0,)
            total += count
        return total

    async def events(
        self,
        wanted: Wanted,
        mapping: Mapping,
        bounds: Bounds,
        *,
        run_id: str,
        time_column: str = _TIME_COLUMN,
        piece_bytes: int = PIECE_BYTES,
    ) -> AsyncGenerator[list[Event], None]:
        """Yield the rows inside the bounds as events, in order, in bounded memory.

        One table after another, as they are configured. Left before its end, the
        connection is of no more use.

        Args:
            wanted: the tables, and whether a publication filters their rows.
            mapping: how a row becomes an event.
            bounds: of the rows.
            run_id: what the events carry as ``cdc.replay``.
            time_column: where a row's time is that no commit time tells.
            piece_bytes: a list ends when its rows weigh so much.

        Raises:
            MappingError: a row cannot be an event.
            SettingsError, RequirementMissing, SlotError: see :meth:`count`.

        """
        tables = await self._tables(wanted, mapping, time_column)
        picked = await self._picked(tables, bounds, time_column)
        for table in tables:
            binding = mapping.bind(table.relation, table.name)
            query = reading(table, picked).as_bytes(self._connection)
            reader = pieces(self._connection, query, piece_bytes=piece_bytes)
            with self._named(table, bounds):
                async with aclosing(reader) as read:
                    async for rows in read:
                        now_ms = time.time_ns() // _NS_PER_MS
                        yield [
                            binding.replayed(values, run_id=run_id, now_ms=now_ms)
                            for values in rows
                        ]

    async def _tables(
        self, wanted: Wanted, mapping: Mapping, time_column: str
    ) -> list[OutboxTable]:
        asking = outbox_tables(
            self._connection, wanted, mapping, time_column=time_column
        )
        with translated():
            return await bounded(asking, self._connection)

    async def _picked(
        self, tables: list[OutboxTable], bounds: Bounds, time_column: str
    ) -> Picked:
        return Picked(
            bounds=bounds,
            clock=self._clock,
            time_column=time_column,
            since=await self._found(tables, bounds.since),
            until=await self._found(tables, bounds.until),
        )

    async def _found(
        self, tables: list[OutboxTable], end: Since | None
    ) -> Found | None:
        """Find an event that bounds the rows; None where it is a time that does."""
        if end is None or not isinstance(end.value, EventId):
            return None
        for table in tables:
            rank = await self._rank(table, end.value)
            if rank is not None:
                return Found(table=table, rank=rank)
        names = ", ".join(str(table.name) for table in tables)
        raise SettingsError(
            f"{end} is not in {names}",
            hint="give the id of a row that is there, or a time (2026-01-31T12:00:00Z)",
        )

    async def _rank(self, table: OutboxTable, event: EventId) -> TupleRow | None:
        query = finding(table, event, self._clock)
        if query is None:
            return None
        try:
            with translated():
                # What is no id of this table's type fails, and would end the snapshot.
                await self._run("SAVEPOINT finding")
                rank = await self._one(query, limit_s=SCAN_LIMIT_S)
                await self._run("RELEASE SAVEPOINT finding")
        except ServerRefused as exc:
            if not _is_of_data(exc):
                raise
            with translated():
                await self._run("ROLLBACK TO SAVEPOINT finding")
            return None
        return rank

    async def _one(self, query: sql.Composed, *, limit_s: float) -> TupleRow | None:
        async def asked() -> TupleRow | None:
            return await (await self._connection.execute(query)).fetchone()

        return await bounded(asked(), self._connection, limit_s=limit_s)

    async def _run(self, statement: str) -> None:
        await bounded(self._connection.execute(statement.encode()), self._connection)

    @contextmanager
    def _named(self, table: OutboxTable, bounds: Bounds) -> Iterator[None]:
        """Turn the driver's errors into ours, with what is to be done."""
        try:
            with translated():
                yield
        except PermissionDenied as exc:
            exc.hint = exc.hint or grant_select(table.name, self._role)
            raise
        except ServerRefused as exc:
            if bounds.key is None or not _is_of_data(exc):
                raise
            raise SettingsError(
                f"key {bounds.key!r} is none of {table.name}: {exc}",
                hint="write it as Postgres prints it",
            ) from exc


@asynccontextmanager
async def open_snapshot(
    connection: AsyncConnection[TupleRow], name: str | None
) -> AsyncIterator[Snapshot]:
    """Open a snapshot for reading, in a transaction that ends with the context.

    A connection whose rows were not read to their end is closed instead.

    Args:
        connection: ordinary, with our pins, and not in a transaction.
        name: of an exported snapshot; None for one of now.

    Raises:
        ServerRefused: there is no such snapshot any more.
        SlotError: the server is away.

    """
    try:
        yield await bounded(_begun(connection, name), connection)
    finally:
        await _end(connection)


async def _begun(connection: AsyncConnection[TupleRow], name: str | None) -> Snapshot:
    with translated():
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if name is not None:
            await _import(connection, name)
        row = await (await connection.execute(_KNOWN)).fetchone()
    if row is None:
        raise AssertionError("a query that always has a row returned none")
    return Snapshot(connection, row)


async def _import(connection: AsyncConnection[TupleRow], name: str) -> None:
    try:
        await connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(name))
    except (pg_errors.InvalidParameterValue, pg_errors.UndefinedObject) as exc:
        raise ServerRefused(
            f"snapshot {name} is gone: the connection that exported it has ended, or"
            " was used again",
            sqlstate=exc.sqlstate,
        ) from exc


async def _end(connection: AsyncConnection[TupleRow]) -> None:
    if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
        await connection.close()
    elif not connection.closed:
        # Nothing was written: that it cannot be ended is no failure of the reading.
        with suppress(SlotError), translated():
            await bounded(connection.execute("ROLLBACK"), connection)


def _is_of_data(exc: ServerRefused) -> bool:
    """Tell whether a literal was wrong for its column (class 22, data exception)."""
    return (exc.sqlstate or "").startswith("22")
