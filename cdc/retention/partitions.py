"""Whole partitions of an outbox that is partitioned by time.

One is dropped when its upper bound is old enough and every row in it is certainly
acknowledged. It is locked first, so that nobody adds a row between the look and the
drop; a lock that is not to be had at once is tried for again in the next round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from cdc.retention.age import is_acknowledged

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

LOCK_TIMEOUT_MS: Final = 250
"""Whoever waits for us waits no longer. Below ``deadlock_timeout``, so that we are the
one that gives way to an insert that has locked parent and partition the other way
round."""

_LEAVES: Final = """
SELECT n.nspname::text, c.relname::text, c.oid::int8,
       (SELECT (bound)[1] FROM pg_catalog.regexp_match(
            pg_catalog.pg_get_expr(c.relpartbound, c.oid), $$ TO \\('([^']+)'\\)$$)
            AS bound)
  FROM pg_catalog.pg_partition_tree(%s::oid::pg_catalog.regclass) t
  JOIN pg_catalog.pg_class c ON c.oid = t.relid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE t.isleaf
 ORDER BY 4 NULLS LAST, 2
"""

_BY_TIME: Final = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_partitioned_table p
      JOIN pg_catalog.pg_attribute a
        ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
      JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
     WHERE p.partrelid = %s::oid AND p.partstrat = 'r' AND p.partnatts = 1
       AND y.typname IN ('timestamptz', 'timestamp', 'date'))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A table that holds rows: a partition, or the outbox itself.

    Attributes:
        upper: its upper bound as text; None for one without an end (DEFAULT, MAXVALUE)
            and for a table that is no partition.

    """

    schema: str
    name: str
    oid: int
    upper: str | None

    @property
    def identifier(self) -> sql.Identifier:
        """The name, for a statement."""
        return sql.Identifier(self.schema, self.name)


async def leaves_of(connection: AsyncConnection[TupleRow], oid: int) -> list[Leaf]:
    """Return the tables that hold the rows of a table, oldest bound first."""
    by_time = await (await connection.execute(_BY_TIME, [oid])).fetchone()
    rows = await (await connection.execute(_LEAVES, [oid])).fetchall()
    has_bounds = by_time is not None and by_time[0]
    return [
        Leaf(schema=schema, name=name, oid=leaf, upper=upper if has_bounds else None)
        for schema, name, leaf, upper in rows
    ]


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
) -> bool:
    """Drop a partition; False when it is needed, or in use at the moment.

    The connection's ``lock_timeout`` is :data:`LOCK_TIMEOUT_MS`.

    Raises psycopg's error for anything else, such as a foreign key to it.
    """
    try:
        async with connection.transaction():
            await connection.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
                    leaf.identifier
                )
            )
            # The snapshot is taken after the lock: nothing can be added any more.
            if await holds_unacknowledged(connection, leaf, horizon):
                return False
            await connection.execute(sql.SQL("DROP TABLE {}").format(leaf.identifier))
    except (pg_errors.LockNotAvailable, pg_errors.DeadlockDetected):
        return False
    return True
