"""Delete outbox rows that are old enough and certainly acknowledged.

Never by age alone: a row stays until its transaction is older than the horizon, which
moves only with acknowledgements. Small batches, each a transaction of its own, between
which come pauses longer than the work was; a row that somebody has locked is left for
the next round, so that no writer waits for us.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from cdc.errors import OperatorNeeded
from cdc.retention.age import age_of
from cdc.retention.leaves import leaves_of, oid_of, statement
from cdc.retention.partitions import (
    LOCK_TIMEOUT_MS,
    drop_partition,
    holds_unacknowledged,
    is_past,
)
from cdc.retention.report import TablePruned
from cdc.retention.rows import Left, Rows, has_index, walk_of, would_go
from cdc.xid import SNAPSHOT_XMAX
from slots.connect import answer_of, translated

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, TypeVar

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName
    from cdc.retention.leaves import Leaf
    from cdc.retention.rows import Walk

    Answer = TypeVar("Answer")

_ANSWER_LIMIT_S: Final = 300.0
_BIG_TABLE_ROWS: Final = 100_000
_MAX_PAUSE_S: Final = 1.0
_PAUSES: Final = 9
"""Pauses are so many times as long as the work: the relay and the service have the
server to themselves for most of a round, too."""


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
    batch_rows: int = 100


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
        connection: autocommit, with our pins, and of no further use afterwards: its
            ``lock_timeout`` is short then, and being cancelled cuts it.
        tables: the outbox tables.
        retention: what is kept.
        horizon: a full transaction id; rows of every older transaction are
            acknowledged, on this history.
        dry_run: only count.

    Raises:
        RequirementMissing: a table, or what tells the age of its rows, is missing.
        OperatorNeeded: the horizon is none of this server.
        SlotError: a right is missing (the hint is the statement), a foreign key holds
            rows, or the server is away.

    """
    done = []
    for table in tables:
        round_ = _Round(connection, table, retention, horizon=horizon, dry_run=dry_run)
        with translated():
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
        """Drop partitions, and delete the rows of the others."""
        leaves, listed = await self._bounded(self._prepare())
        left = Left()
        for leaf, rows in zip(leaves, listed, strict=True):
            if not await self._dropped(leaf):
                left += await (
                    self._counted(rows) if self._dry_run else self._deleted(rows)
                )
        self._done.unacknowledged = left.unacknowledged
        self._done.oldest = left.oldest
        if left.ageless:
            self._warn(f"{self._table}: {left.ageless} rows have no age; they stay")
        return self._done

    async def _prepare(self) -> tuple[list[Leaf], list[Rows]]:
        connection = self._connection
        await connection.execute(
            sql.SQL("SET lock_timeout = {}").format(LOCK_TIMEOUT_MS)
        )
        cursor = await connection.execute(f"SELECT {SNAPSHOT_XMAX}".encode())
        row = await cursor.fetchone()
        if row is None or self._horizon > row[0]:
            raise OperatorNeeded(
                f"horizon {self._horizon} lies ahead of the server's transactions: it"
                " is of another history; nothing is deleted",
                hint="cdc check",
            )
        oid = await oid_of(connection, self._table)
        leaves = await leaves_of(connection, oid)
        age = await age_of(connection, self._table, oid, self._retention.age_column)
        return leaves, [
            Rows(
                leaf=leaf,
                age=age,
                keep_s=self._retention.keep_s,
                horizon=self._horizon,
                limit=self._retention.batch_rows,
            )
            for leaf in leaves
        ]

    async def _dropped(self, leaf: Leaf) -> bool:
        ours = self._connection
        if not await self._bounded(is_past(ours, leaf, self._retention.keep_s)):
            return False
        # Looked at without a lock first: most of those that stay need none.
        if await self._bounded(holds_unacknowledged(ours, leaf, self._horizon)):
            return False
        if not self._dry_run:
            reason = await self._bounded(drop_partition(ours, leaf, self._horizon))
            if reason:
                self._warn(f"{leaf} is not dropped, its rows are deleted: {reason}")
                return False
        self._done.dropped.append(leaf.name)
        return True

    async def _counted(self, rows: Rows) -> Left:
        deleted, left = await self._bounded(would_go(self._connection, rows))
        self._done.deleted += deleted
        return left

    async def _deleted(self, rows: Rows) -> Left:
        is_indexed = await self._bounded(has_index(self._connection, rows))
        if not is_indexed:
            await self._warn_of_scan(rows)
        walk = await self._bounded(
            walk_of(self._connection, rows, is_indexed=is_indexed)
        )
        while not walk.is_over:
            began_at = time.monotonic()
            self._done.deleted += await self._step(walk, rows.leaf)
            worked_s = time.monotonic() - began_at
            await asyncio.sleep(min(_MAX_PAUSE_S, _PAUSES * worked_s))
        return await self._bounded(walk.left(self._connection))

    async def _step(self, walk: Walk, leaf: Leaf) -> int:
        """Delete a batch; one with locked rows without them, where that is allowed.

        To skip what is locked takes the right to update, and a lock on every row. So it
        is done only where there is something to skip.
        """
        try:
            return await self._bounded(walk.step(self._connection, skips_locked=False))
        except (pg_errors.LockNotAvailable, pg_errors.DeadlockDetected):
            if leaf.may_lock:
                return await self._bounded(
                    walk.step(self._connection, skips_locked=True)
                )
        walk.give_way()
        grant = statement(
            "GRANT UPDATE ON {} TO {}", leaf.identifier, sql.Identifier(leaf.role)
        )
        self._warn(
            f"{leaf}: rows are locked, others wait with them; {grant} skips them"
        )
        return 0

    async def _warn_of_scan(self, rows: Rows) -> None:
        """Say what index is missing where a round reads all of a big table."""
        leaf, column = rows.leaf, rows.age.column
        query = "SELECT reltuples > %s FROM pg_catalog.pg_class WHERE oid = %s::oid"
        cursor = await self._bounded(
            self._connection.execute(query, [_BIG_TABLE_ROWS, leaf.oid])
        )
        row = await cursor.fetchone()
        if row is None or not row[0] or column is None:
            return
        index = statement(
            "CREATE INDEX CONCURRENTLY ON {} ({})",
            leaf.identifier,
            sql.Identifier(column),
        )
        self._warn(f"{leaf}: every round reads the whole table: {index}")

    def _warn(self, text: str) -> None:
        if text not in self._done.warnings:
            self._done.warnings.append(text)

    async def _bounded(self, question: Coroutine[Any, Any, Answer]) -> Answer:
        info = self._connection.info
        return await answer_of(
            question,
            self._connection,
            limit_s=_ANSWER_LIMIT_S,
            where=f"{info.host}:{info.port}/{info.dbname}",
        )
