"""Delete outbox rows that are old enough and certainly acknowledged.

Never by age alone: a row stays until its transaction is older than the horizon, which
moves only with acknowledgements. Small batches, each a transaction of its own; one that
meets a locked row gives way until the next round. Between two of them comes a pause as
long as the work was.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from cdc.errors import RequirementMissing
from cdc.retention.age import Age, age_of, is_acknowledged
from cdc.retention.partitions import (
    LOCK_TIMEOUT_MS,
    Leaf,
    drop_partition,
    holds_unacknowledged,
    is_past,
    leaves_of,
)
from cdc.retention.report import TablePruned
from slots.connect import answer_of, translated
from slots.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, TypeVar

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName

    Answer = TypeVar("Answer")

_ANSWER_LIMIT_S: Final = 300.0
_BIG_TABLE_ROWS: Final = 100_000
_MAX_PAUSE_S: Final = 1.0

_TABLE: Final = """
SELECT c.oid::int8 FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept.

    Attributes:
        keep_s: rows younger than this stay; seconds.
        age_column: tells a row's age.
        batch_rows: deleted in one transaction.

    """

    keep_s: float
    age_column: str = "created_at"
    batch_rows: int = 1000


async def prune(
    connection: AsyncConnection[TupleRow],
    tables: Sequence[TableName],
    retention: Retention,
    *,
    horizon: int,
    dry_run: bool = False,
) -> list[TablePruned]:
    """Delete what is old and acknowledged; say what was done, a part for each table.

    Args:
        connection: autocommit, with our pins; may be cut off when it stays silent.
        tables: the outbox tables.
        retention: what is kept.
        horizon: a full transaction id; rows of every older transaction are
            acknowledged, on this history.
        dry_run: only count.

    Raises:
        RequirementMissing: a table, or what tells the age of its rows, is missing.
        SlotError: a right is missing (the hint is the statement), or the server away.

    """
    done = []
    for table in tables:
        round_ = _Round(connection, table, retention, horizon=horizon, dry_run=dry_run)
        done.append(await round_.run())
    return done


class _Round:
    """One table, once."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        table: TableName,
        retention: Retention,
        *,
        horizon: int,
        dry_run: bool,
    ) -> None:
        self._connection = connection
        self._table = table
        self._retention = retention
        self._horizon = horizon
        self._dry_run = dry_run
        self._done = TablePruned(table=str(table))

    async def run(self) -> TablePruned:
        """Drop partitions, then delete rows, then look what is left."""
        try:
            with translated():
                await self._prune()
        except PermissionDenied as exc:
            exc.hint = exc.hint or (
                f"GRANT SELECT, DELETE ON {self._table} TO the relay's role; only the"
                " owner drops partitions"
            )
            raise
        return self._done

    async def _prune(self) -> None:
        cursor = await self._connection.execute(
            _TABLE, [self._table.schema, self._table.name]
        )
        row = await cursor.fetchone()
        if row is None:
            raise RequirementMissing(f"table {self._table} does not exist")
        oid = int(row[0])
        await self._connection.execute(
            sql.SQL("SET lock_timeout = {}").format(LOCK_TIMEOUT_MS)
        )
        age = await age_of(
            self._connection, self._table, oid, self._retention.age_column
        )
        for leaf in await leaves_of(self._connection, oid) or [self._itself(oid)]:
            if not await self._dropped(leaf):
                await self._delete(leaf, age)
        await self._look(age)

    def _itself(self, oid: int) -> Leaf:
        return Leaf(
            schema=self._table.schema, name=self._table.name, oid=oid, upper=None
        )

    async def _dropped(self, leaf: Leaf) -> bool:
        if not await is_past(self._connection, leaf, self._retention.keep_s):
            return False
        if self._dry_run:
            kept = await self._bounded(
                holds_unacknowledged(self._connection, leaf, self._horizon)
            )
            is_dropped = not kept
        else:
            is_dropped = await self._bounded(
                drop_partition(self._connection, leaf, self._horizon)
            )
        if is_dropped:
            self._done.dropped.append(leaf.name)
        return is_dropped

    async def _delete(self, leaf: Leaf, age: Age) -> None:
        old = self._old(leaf, age)
        await self._warn_of_scan(leaf, age, old)
        if self._dry_run:
            self._done.deleted += await self._count(
                sql.SQL("SELECT count(*) FROM {} WHERE {} AND {}").format(
                    leaf.identifier,
                    age.is_over(self._retention.keep_s),
                    is_acknowledged(self._horizon),
                )
            )
            return
        # No FOR UPDATE SKIP LOCKED: that would take the right to update. A row that
        # changes meanwhile is at another place then, and stays.
        statement = sql.SQL("DELETE FROM {} WHERE ctid = ANY (ARRAY({}))").format(
            leaf.identifier, old
        )
        count = self._retention.batch_rows
        while count >= self._retention.batch_rows:
            began_at = time.monotonic()
            count = await self._batch(leaf, statement)
            self._done.deleted += count
            # The relay and the service have the server to themselves half of the time.
            await asyncio.sleep(min(_MAX_PAUSE_S, time.monotonic() - began_at))

    async def _batch(self, leaf: Leaf, statement: sql.Composed) -> int:
        try:
            cursor = await self._bounded(self._connection.execute(statement))
        except pg_errors.LockNotAvailable:
            name = f"{leaf.schema}.{leaf.name}"
            self._done.warnings.append(f"{name}: a row is locked; the rest has to wait")
            return 0
        return cursor.rowcount

    def _old(self, leaf: Leaf, age: Age) -> sql.Composed:
        return sql.SQL(
            "SELECT ctid FROM {} WHERE {} AND {} ORDER BY {} LIMIT {}"
        ).format(
            leaf.identifier,
            age.is_over(self._retention.keep_s),
            is_acknowledged(self._horizon),
            age.expression,
            self._retention.batch_rows,
        )

    async def _warn_of_scan(self, leaf: Leaf, age: Age, old: sql.Composed) -> None:
        """Say what index is missing where each batch would read all of a big table."""
        if age.column is None or not await self._is_big(leaf):
            return
        cursor = await self._connection.execute(sql.SQL("EXPLAIN {}").format(old))
        plan = [str(line) for (line,) in await cursor.fetchall()]
        if any("Seq Scan" in line for line in plan):
            statement = sql.SQL("CREATE INDEX CONCURRENTLY ON {} ({});").format(
                leaf.identifier, sql.Identifier(age.column)
            )
            self._done.warnings.append(
                f"{leaf.schema}.{leaf.name}: every batch reads the whole table:"
                f" {statement.as_string(self._connection)}"
            )

    async def _is_big(self, leaf: Leaf) -> bool:
        query = "SELECT reltuples > %s FROM pg_catalog.pg_class WHERE oid = %s::oid"
        cursor = await self._connection.execute(query, [_BIG_TABLE_ROWS, leaf.oid])
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _look(self, age: Age) -> None:
        table = sql.Identifier(self._table.schema, self._table.name)
        self._done.unacknowledged = await self._count(
            sql.SQL("SELECT count(*) FROM {} WHERE {} AND NOT ({})").format(
                table,
                age.is_over(self._retention.keep_s),
                is_acknowledged(self._horizon),
            )
        )
        oldest = sql.SQL("SELECT min({})::timestamptz FROM {}").format(
            age.expression, table
        )
        cursor = await self._bounded(self._connection.execute(oldest))
        row = await cursor.fetchone()
        self._done.oldest = None if row is None else row[0]

    async def _count(self, query: sql.Composed) -> int:
        cursor = await self._bounded(self._connection.execute(query))
        row = await cursor.fetchone()
        return 0 if row is None else int(row[0])

    async def _bounded(self, question: Coroutine[Any, Any, Answer]) -> Answer:
        info = self._connection.info
        return await answer_of(
            question,
            self._connection,
            limit_s=_ANSWER_LIMIT_S,
            where=f"{info.host}:{info.port}/{info.dbname}",
        )
