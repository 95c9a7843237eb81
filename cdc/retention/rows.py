"""One table's rows that are old and acknowledged, deleted a batch at a time.

With an index on the age the oldest come first, and each batch begins at the age where
the last one ended: index entries of deleted rows stay until a vacuum, and would be
walked over again and again. Without one the table is walked through once, a few blocks
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from psycopg import sql

from cdc.retention.age import is_acknowledged

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.retention.age import Age
    from cdc.retention.leaves import Leaf

_BLOCKS: Final = 64
"""Half a megabyte is read in a millisecond or two, whatever it holds."""

_INDEX: Final = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index i
      JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
      JOIN pg_catalog.pg_am m ON m.oid = c.relam
      JOIN pg_catalog.pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
     WHERE i.indrelid = %s::oid AND a.attname = %s AND m.amname = 'btree'
       AND i.indisvalid AND i.indpred IS NULL)
"""
_SIZE: Final = """
SELECT pg_catalog.pg_relation_size(%s::oid)
       / pg_catalog.current_setting('block_size')::int8
"""

_BY_AGE: Final = sql.SQL("""
WITH going AS MATERIALIZED (
    SELECT ctid AS place, {age} AS at FROM ONLY {table}
     WHERE {age} >= %(since)s::{type} AND {is_over} AND {is_acknowledged}
     ORDER BY {age} LIMIT {limit} {locking}),
gone AS (
    DELETE FROM ONLY {table}
     WHERE ctid = ANY (ARRAY(SELECT place FROM going))
       AND {is_over} AND {is_acknowledged}
    RETURNING 1)
SELECT (SELECT pg_catalog.count(*) FROM gone), pg_catalog.count(*),
       pg_catalog.max(at)::text
  FROM going
""")
_BY_PLACE: Final = sql.SQL("""
WITH seen AS MATERIALIZED (
    SELECT {age} AS at, {is_over} AS is_over, {is_acknowledged} AS is_acknowledged
      FROM ONLY {table} WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid),
going AS MATERIALIZED (
    SELECT ctid AS place FROM ONLY {table}
     WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid
       AND {is_over} AND {is_acknowledged}
     LIMIT {limit} {locking}),
gone AS (
    DELETE FROM ONLY {table}
     WHERE ctid = ANY (ARRAY(SELECT place FROM going))
       AND {is_over} AND {is_acknowledged}
    RETURNING 1)
SELECT (SELECT pg_catalog.count(*) FROM gone),
       (SELECT pg_catalog.count(*) FROM going),
       pg_catalog.count(*) FILTER (WHERE is_over AND NOT is_acknowledged),
       pg_catalog.count(*) FILTER (WHERE at IS NULL),
       (pg_catalog.min(at) FILTER (
           WHERE NOT is_over OR NOT is_acknowledged))::timestamptz
  FROM seen
""")
_LEFT: Final = sql.SQL("""
SELECT (SELECT pg_catalog.count(*) FROM ONLY {table}
         WHERE {is_over} AND NOT {is_acknowledged}),
       (SELECT pg_catalog.count(*) FROM ONLY {table} WHERE {age} IS NULL),
       (SELECT pg_catalog.min({age})::timestamptz FROM ONLY {table})
""")
_WOULD_GO: Final = sql.SQL("""
SELECT pg_catalog.count(*) FILTER (WHERE {is_over} AND {is_acknowledged}),
       pg_catalog.count(*) FILTER (WHERE {is_over} AND NOT {is_acknowledged}),
       pg_catalog.count(*) FILTER (WHERE {age} IS NULL),
       (pg_catalog.min({age}) FILTER (
           WHERE NOT {is_over} OR NOT {is_acknowledged}))::timestamptz
  FROM ONLY {table}
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one table, and which of them go."""

    leaf: Leaf
    age: Age
    keep_s: float
    horizon: int
    limit: int

    def query(self, template: sql.SQL, *, skips_locked: bool = False) -> sql.Composed:
        """Fill in a statement."""
        return template.format(
            table=self.leaf.identifier,
            age=self.age.expression,
            type=self.age.type,
            is_over=self.age.is_over(self.keep_s),
            is_acknowledged=is_acknowledged(self.horizon),
            limit=self.limit,
            locking=sql.SQL("FOR UPDATE SKIP LOCKED" if skips_locked else ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What stays.

    Attributes:
        unacknowledged: rows that are old enough and not certainly acknowledged.
        ageless: rows whose age is not known; they are kept.
        oldest: time of the oldest row.

    """

    unacknowledged: int = 0
    ageless: int = 0
    oldest: datetime | None = None

    def __add__(self, other: Left) -> Left:
        """Return what stays of both."""
        times = [one for one in (self.oldest, other.oldest) if one is not None]
        return Left(
            unacknowledged=self.unacknowledged + other.unacknowledged,
            ageless=self.ageless + other.ageless,
            oldest=min(times, default=None),
        )


class Walk(Protocol):
    """A way through a table's rows."""

    @property
    def is_over(self) -> bool:
        """Whether everything was walked through."""
        ...

    async def step(
        self, connection: AsyncConnection[TupleRow], *, skips_locked: bool
    ) -> int:
        """Delete one batch; return how many rows that were."""
        ...

    def give_way(self) -> None:
        """Leave out what is locked."""
        ...

    async def left(self, connection: AsyncConnection[TupleRow]) -> Left:
        """Return what stays."""
        ...


async def has_index(connection: AsyncConnection[TupleRow], rows: Rows) -> bool:
    """Tell whether an index has the rows in the order of their age."""
    cursor = await connection.execute(_INDEX, [rows.leaf.oid, rows.age.column])
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def would_go(
    connection: AsyncConnection[TupleRow], rows: Rows
) -> tuple[int, Left]:
    """Count the rows that would be deleted, and what would stay."""
    cursor = await connection.execute(rows.query(_WOULD_GO))
    going, unacknowledged, ageless, oldest = await cursor.fetchone() or (0, 0, 0, None)
    return going, Left(unacknowledged=unacknowledged, ageless=ageless, oldest=oldest)


@dataclass(slots=True, kw_only=True)
class ByAge:
    """The oldest first, where an index tells which those are."""

    rows: Rows
    is_over: bool = False
    since: str = "-infinity"

    async def step(
        self, connection: AsyncConnection[TupleRow], *, skips_locked: bool
    ) -> int:
        """Delete the next oldest."""
        cursor = await connection.execute(
            self.rows.query(_BY_AGE, skips_locked=skips_locked), {"since": self.since}
        )
        deleted, found, last = await cursor.fetchone() or (0, 0, None)
        self.since = last or self.since
        # Others have changed all that was found: it does not go in this round.
        self.is_over = found < self.rows.limit or deleted == 0
        return int(deleted)

    def give_way(self) -> None:
        """Leave the rest: which of the oldest is locked is not known."""
        self.is_over = True

    async def left(self, connection: AsyncConnection[TupleRow]) -> Left:
        """Ask the index."""
        cursor = await connection.execute(self.rows.query(_LEFT))
        unacknowledged, ageless, oldest = await cursor.fetchone() or (0, 0, None)
        return Left(unacknowledged=unacknowledged, ageless=ageless, oldest=oldest)


@dataclass(slots=True, kw_only=True)
class ByPlace:
    """As they lie in the table, up to where it ended at the beginning."""

    rows: Rows
    blocks: int
    block: int = 0
    seen: Left = field(default_factory=Left)

    @property
    def is_over(self) -> bool:
        """Whether the end is reached."""
        return self.block >= self.blocks

    async def step(
        self, connection: AsyncConnection[TupleRow], *, skips_locked: bool
    ) -> int:
        """Delete what is to go in the next blocks."""
        cursor = await connection.execute(
            self.rows.query(_BY_PLACE, skips_locked=skips_locked),
            {"first": f"({self.block},0)", "end": f"({self.block + _BLOCKS},0)"},
        )
        row = await cursor.fetchone()
        deleted, found, unacknowledged, ageless, oldest = row or (0, 0, 0, 0, None)
        if found < self.rows.limit or deleted == 0:
            self.block += _BLOCKS
            self.seen += Left(
                unacknowledged=unacknowledged, ageless=ageless, oldest=oldest
            )
        return int(deleted)

    def give_way(self) -> None:
        """Leave these blocks."""
        self.block += _BLOCKS

    async def left(self, connection: AsyncConnection[TupleRow]) -> Left:  # noqa: ARG002
        """Return what was seen on the way."""
        return self.seen


async def walk_of(
    connection: AsyncConnection[TupleRow], rows: Rows, *, is_indexed: bool
) -> Walk:
    """Choose the way through a table."""
    if is_indexed:
        return ByAge(rows=rows)
    cursor = await connection.execute(_SIZE, [rows.leaf.oid])
    row = await cursor.fetchone()
    return ByPlace(rows=rows, blocks=0 if row is None else int(row[0]))
