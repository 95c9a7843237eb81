"""Whole partitions of an outbox that is partitioned by time.

One is dropped when its upper bound is old enough and every row in it is certainly
acknowledged. It is locked before the look that counts, so that nobody adds a row
between the look and the drop. Whoever holds a row of the outbox at that moment wins,
and nobody waits for us for longer than :data:`LOCK_TIMEOUT_MS`, or behind the look for
longer than :data:`_LOOK_MS`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from cdc.retention.age import is_acknowledged
from cdc.retention.leaves import statement

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.retention.leaves import Leaf

LOCK_TIMEOUT_MS: Final = 100
"""The drop needs the parent, too, and new inserts queue behind us meanwhile. Below
``deadlock_timeout``, so that we are the one that gives way to an insert that has locked
parent and partition the other way round."""

_LOOK_MS: Final = 2000
"""For a look that has been taken once before, and finds the pages in memory."""

_ATTEMPTS: Final = 3
_BETWEEN_ATTEMPTS_S: Final = 0.5


async def is_past(
    connection: AsyncConnection[TupleRow], leaf: Leaf, keep_s: float
) -> bool:
    """Tell whether every row that a partition could take is old enough."""
    if leaf.upper is None:
        return False
    cursor = await connection.execute(
        "SELECT %s::timestamptz < pg_catalog.now() - %s::interval",
        [leaf.upper, f"{keep_s} seconds"],
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def holds_unacknowledged(
    connection: AsyncConnection[TupleRow], leaf: Leaf, horizon: int
) -> bool:
    """Tell whether a partition has a row that is not certainly acknowledged."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE NOT ({}))").format(
        leaf.identifier, is_acknowledged(horizon)
    )
    row = await (await connection.execute(query)).fetchone()
    return row is None or bool(row[0])


async def drop_partition(
    connection: AsyncConnection[TupleRow], leaf: Leaf, horizon: int
) -> str | None:
    """Drop a partition that holds nothing unacknowledged; return why it was not.

    The connection's ``lock_timeout`` is :data:`LOCK_TIMEOUT_MS`.
    """
    if not leaf.is_ours:
        owner = statement(
            "ALTER TABLE {} OWNER TO {}", leaf.identifier, sql.Identifier(leaf.role)
        )
        return f"role {leaf.role} may not drop it: {owner}"
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
        try:
            return await _drop(connection, leaf, horizon)
        except (pg_errors.LockNotAvailable, pg_errors.DeadlockDetected):
            continue
        except pg_errors.QueryCanceled:
            return "to look through it takes longer than others may wait"
        except pg_errors.DependentObjectsStillExist as exc:
            return f"{exc.diag.message_primary} ({exc.diag.message_detail})"
    return "it is in use"


async def _drop(
    connection: AsyncConnection[TupleRow], leaf: Leaf, horizon: int
) -> str | None:
    async with connection.transaction():
        await connection.execute(
            sql.SQL("SET LOCAL statement_timeout = {}").format(_LOOK_MS)
        )
        await connection.execute(
            sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(leaf.identifier)
        )
        # The snapshot is taken after the lock: nothing can be added any more.
        if await holds_unacknowledged(connection, leaf, horizon):
            return "a row came in that is not certainly acknowledged"
        await connection.execute(sql.SQL("DROP TABLE {}").format(leaf.identifier))
    return None
