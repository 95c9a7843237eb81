"""Positions in a table of the source database, for sinks that keep none themselves.

Written seldom: each write is WAL of the database that is being read. And it is lost
with that database: a restored backup brings an older position along.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import sql

from cdc.errors import RequirementMissing
from cdc.finding import failure, ok
from cdc.sinks import Kept, Pace
from slots.connect import address, answer_of, connect, translated
from slots.errors import PermissionDenied, ServerUnavailable, SlotError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Self

    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from slots.connect import Target

TABLE: Final = "walferry_position"
_NAME: Final = "postgres.position_table"
_LIMIT_S: Final = 10.0
_IDLE_BYTES: Final = 16 * 1024 * 1024
_SETTINGS: Final = """
SET statement_timeout = '8s';
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off"""
"""Against defaults of the role or the database. A write is durable when it returns. It
waits for its turn behind another one instead of failing. And a server that is kept from
answering, by a lock for one, ends the statement itself, before we give it up: it would
not notice that we are gone, and each attempt would leave a session behind."""

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS {} (
    name text PRIMARY KEY,
    term bigint NOT NULL,
    position jsonb NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now()
)"""
_READ: Final = "SELECT term, position::text FROM {} WHERE name = %s"
_WRITE: Final = """
INSERT INTO {} AS known (name, term, position, stored_at)
VALUES (%s, %s, %s::pg_catalog.jsonb, pg_catalog.now())
ON CONFLICT (name) DO UPDATE
   SET term = excluded.term, position = excluded.position,
       stored_at = excluded.stored_at
 WHERE known.term <= excluded.term"""
_GRANT: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role};"
    " GRANT SELECT, INSERT, UPDATE ON {table} TO {role};"
)
_COMPARE: Final = "compare it with what `cdc init` makes where there is none"
_MAKER: Final = "run `cdc init` as an administrator, or as the owner of the schema"
_ANSWERED: Final = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.ReadOnlySqlTransaction,
)
_LOCKED: Final = "see who holds the lock: pg_locks, pg_blocking_pids(pid)"
_STANDBY: Final = "address the primary; during a failover that passes"
_FIND: Final = """
SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
       AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
       AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
       AND pg_catalog.has_table_privilege(c.oid, 'UPDATE') AS is_granted,
       c.relpersistence = 'p' AS is_kept,
       pg_catalog.row_security_active(c.oid) AS is_hidden
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s"""

Answer = TypeVar("Answer")


class TablePositions:
    """A position store in the source database.

    Args:
        target: the database; connected to when there is something to ask.
        schema: of the table.

    Attributes:
        pace: every three seconds while events flow. Without events not before 16 MiB
            of WAL have passed, one segment: the few hundred bytes that a write makes
            are then never the reason for another one.

    Raises what ``slots.connect`` raises, besides what is named.

    """

    pace = Pace(events_s=3.0, idle_s=3.0, idle_bytes=_IDLE_BYTES)

    def __init__(self, target: Target, schema: str = "public") -> None:
        self._target = target
        self._schema = schema
        self._table = sql.Identifier(schema, TABLE)
        self._place = f"{schema}.{TABLE}"
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._disconnect()

    async def read(self, name: str) -> Kept | None:
        """Return what the highest term has written last, None if nobody has.

        Raises RequirementMissing when there is no table.
        """
        rows = await self._ask(lambda line: self._fetch(line, _READ, name))
        for term, position in rows:
            return Kept(name, term, position.encode())
        return None

    async def write(self, kept: Kept) -> None:
        """Keep it, unless a later term has written; durable when this returns.

        Raises RequirementMissing when there is no table.
        """
        row = (kept.name, kept.term, kept.document.decode())
        await self._ask(lambda line: self._execute(line, _WRITE, *row))

    async def check(self) -> list[Finding]:
        """Test whether the table is there, is what we make, and may be used."""
        try:
            found = await self._ask(self._find)
            if not found:
                return [failure(_NAME, str(self._missing()), "cdc init")]
            fault = await self._ask(lambda line: self._fault(line, found[0]))
            if fault is not None:
                return [failure(_NAME, f"table {self._place} {fault[0]}", fault[1])]
            # Planned, not done: that finds the columns and the key.
            explained = f"EXPLAIN {_WRITE}"
            await self._ask(lambda line: self._execute(line, explained, "", 0, "{}"))
            await self.read("")
        except SlotError as exc:
            seen = f"table {self._place}: {exc}"
            return [failure(_NAME, seen, exc.hint or _COMPARE)]
        finally:
            await self._disconnect()
        return [ok(_NAME, f"table {self._place} keeps the position")]

    async def make(self) -> list[str]:
        """Make the table if it does not exist; say what was made."""
        if await self._ask(self._find):
            return []
        try:
            await self._ask(self._create)
        except PermissionDenied as exc:
            exc.hint = _MAKER
            raise
        return [f"table {self._place}"]

    async def _find(self, line: psycopg.AsyncConnection[TupleRow]) -> list[TupleRow]:
        cursor = await line.execute(_FIND, (self._schema, TABLE))
        return await cursor.fetchall()

    async def _create(self, line: psycopg.AsyncConnection[TupleRow]) -> None:
        try:
            await self._execute(line, _CREATE)
        except psycopg.errors.UniqueViolation:
            # IF NOT EXISTS does not see what another session is making.
            await self._execute(line, _CREATE)
        except psycopg.errors.InvalidSchemaName as exc:
            schema = sql.Identifier(self._schema).as_string(line)
            raise RequirementMissing(
                f"schema {self._schema}, where the position is kept, does not exist",
                hint=f"CREATE SCHEMA {schema};",
            ) from exc

    async def _fault(
        self,
        line: psycopg.AsyncConnection[TupleRow],
        found: TupleRow,
    ) -> tuple[str, str] | None:
        """Return what is wrong with a table that is there, and the remedy."""
        is_granted, is_kept, is_hidden = found
        alter = f"ALTER TABLE {self._table.as_string(line)}"
        if not is_granted:
            return "may not be read and written", await self._grant(line)
        if not is_kept:
            return "is unlogged: a crash empties it", f"{alter} SET LOGGED;"
        if is_hidden:
            return "hides rows from us", f"{alter} DISABLE ROW LEVEL SECURITY;"
        return None

    async def _fetch(
        self, line: psycopg.AsyncConnection[TupleRow], query: str, *given: object
    ) -> list[TupleRow]:
        statement = sql.SQL(query).format(self._table)
        return await (await line.execute(statement, given)).fetchall()

    async def _execute(
        self, line: psycopg.AsyncConnection[TupleRow], query: str, *given: object
    ) -> None:
        await line.execute(sql.SQL(query).format(self._table), given)

    async def _grant(self, line: psycopg.AsyncConnection[TupleRow]) -> str:
        statement = sql.SQL(_GRANT).format(
            schema=sql.Identifier(self._schema),
            table=self._table,
            role=sql.Identifier(line.info.user),
        )
        return statement.as_string(line)

    async def _ask(
        self,
        question: Callable[
            [psycopg.AsyncConnection[TupleRow]], Coroutine[Any, Any, Answer]
        ],
    ) -> Answer:
        """Ask over our connection, and once more over a new one when it was lost."""
        is_old = self._connection is not None and not self._connection.closed
        try:
            return await self._ask_once(question)
        except ServerUnavailable as exc:
            await self._disconnect()
            if not is_old or isinstance(exc.__cause__, _ANSWERED):
                raise
        return await self._ask_once(question)

    async def _ask_once(
        self,
        question: Callable[
            [psycopg.AsyncConnection[TupleRow]], Coroutine[Any, Any, Answer]
        ],
    ) -> Answer:
        where = address(self._target)
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect(where)
        line = self._connection
        try:
            with translated(), self._understood(where):
                return await answer_of(
                    question(line), line, limit_s=_LIMIT_S, where=where
                )
        except PermissionDenied as exc:
            exc.hint = await self._grant(line)
            raise

    async def _connect(self, where: str) -> psycopg.AsyncConnection[TupleRow]:
        line = await connect(self._target)
        try:
            with translated():
                pinning = line.execute(_SETTINGS)
                await answer_of(pinning, line, limit_s=_LIMIT_S, where=where)
        except BaseException:
            await line.close()
            raise
        return line

    @contextmanager
    def _understood(self, where: str) -> Iterator[None]:
        """Name what the driver's error alone does not tell."""
        try:
            yield
        except psycopg.errors.UndefinedTable as exc:
            raise self._missing() from exc
        except psycopg.errors.QueryCanceled as exc:
            raise ServerUnavailable(
                f"{where}: table {self._place} could not be used in time", hint=_LOCKED
            ) from exc
        except psycopg.errors.ReadOnlySqlTransaction as exc:
            raise ServerUnavailable(
                f"{where}: a standby, which keeps no position", hint=_STANDBY
            ) from exc

    def _missing(self) -> RequirementMissing:
        return RequirementMissing(
            f"table {self._place}, which keeps the position, does not exist",
            hint="cdc init",
        )

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
