"""The outbox tables and their publication, read in one query.

One query, because it is asked at every status interval of a run: whatever breaks the
coverage of a table while the relay streams shows in the next answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg.rows import class_row

from cdc.outbox import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.requirements.wanted import Wanted

_COLUMN_LISTS_SINCE: Final = 150000

# Rows, not joins on c: a table that does not exist still has its row.
_QUERY: Final = """
SELECT w.schema, w.name,
       c.oid::int8 AS oid,
       c.relkind::text AS kind,
       c.relpersistence::text AS persistence,
       CASE WHEN c.relispartition THEN (
           SELECT ARRAY[rn.nspname::text, r.relname::text]
             FROM pg_catalog.pg_class r
             JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
            WHERE r.oid = pg_catalog.pg_partition_root(c.oid))
       END AS root,
       ARRAY(SELECT l.oid::pg_catalog.regclass::text
               FROM pg_catalog.pg_partition_tree(c.oid) t
               JOIN pg_catalog.pg_class l ON l.oid = t.relid
              WHERE t.isleaf AND (l.relpersistence <> 'p' OR l.relkind = 'f')
              ORDER BY 1) AS leaves_outside_wal,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum) AS columns,
       ARRAY(SELECT a.attgenerated::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              ORDER BY a.attnum) AS generated,
       CASE WHEN c.relreplident = 'd' AND NOT EXISTS (
                SELECT FROM pg_catalog.pg_index i
                 WHERE i.indrelid = c.oid AND i.indisprimary)
            THEN 'n' ELSE c.relreplident::text END AS identity,
       p.oid IS NOT NULL AS has_publication,
       p.pubinsert AS inserts,
       p.pubupdate OR p.pubdelete AS changes,
       p.pubviaroot AS via_root,
       p.puballtables OR EXISTS (
           SELECT FROM pg_catalog.pg_publication_rel r
            WHERE r.prpubid = p.oid AND r.prrelid = c.oid
       ) {listed_by_schema} AS is_listed,
       t.tablename IS NOT NULL AS is_published,
       {published_columns} AS published_columns,
       {row_filter} AS row_filter
  FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]),
                  pg_catalog.unnest(%(names)s::text[]))
       WITH ORDINALITY AS w(schema, name, position)
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  LEFT JOIN pg_catalog.pg_class c
         ON c.relnamespace = n.oid AND c.relname = w.name
        AND c.relkind NOT IN ('i', 'I', 't', 'c', 'S')
  LEFT JOIN pg_catalog.pg_publication p ON p.pubname = %(publication)s
  LEFT JOIN pg_catalog.pg_publication_tables t
         ON t.pubname = p.pubname
        AND t.schemaname = w.schema AND t.tablename = w.name
 ORDER BY w.position
"""

_BEFORE_COLUMN_LISTS: Final = {
    "listed_by_schema": "",
    "published_columns": "NULL::text[]",
    "row_filter": "NULL::text",
}
_WITH_COLUMN_LISTS: Final = {
    "listed_by_schema": """OR EXISTS (
           SELECT FROM pg_catalog.pg_publication_namespace s
            WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)""",
    "published_columns": "t.attnames::text[]",
    "row_filter": "t.rowfilter",
}

_ALL_TABLES: Final = """
SELECT n.nspname::text, c.relname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A wanted table as the catalog has it, and what the publication does with it.

    Attributes:
        oid: None when there is no such table; most else is empty then.
        kind: ``pg_class.relkind``.
        root: schema and name of the topmost ancestor, when it is a partition.
        leaves_outside_wal: partitions that are unlogged, temporary or foreign.
        generated: for each of ``columns``: empty, ``s`` (stored) or ``v`` (virtual).
        identity: replica identity; ``n`` when an UPDATE has nothing to go by.
        is_listed: named by the publication, itself or by its schema.
        is_published: rows come under this table's name.
        published_columns: None before Postgres 15, which has no column lists.

    """

    schema: str
    name: str
    oid: int | None
    kind: str | None
    persistence: str | None
    root: list[str] | None
    leaves_outside_wal: list[str]
    columns: list[str]
    generated: list[str]
    identity: str | None
    has_publication: bool
    inserts: bool | None
    changes: bool | None
    via_root: bool | None
    is_listed: bool | None
    is_published: bool
    published_columns: list[str] | None
    row_filter: str | None

    @property
    def table_name(self) -> TableName:
        """The name, as the settings have it."""
        return TableName(self.schema, self.name)

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows live in partitions."""
        return self.kind == "p"


async def read_tables(
    conn: AsyncConnection[TupleRow], wanted: Wanted, server_version: int
) -> list[Table]:
    """Read the wanted tables, in the order wanted, existing or not."""
    parts = (
        _WITH_COLUMN_LISTS
        if server_version >= _COLUMN_LISTS_SINCE
        else _BEFORE_COLUMN_LISTS
    )
    async with conn.cursor(row_factory=class_row(Table)) as cursor:
        await cursor.execute(
            _QUERY.format(**parts).encode(),
            {
                "schemas": [table.schema for table in wanted.tables],
                "names": [table.name for table in wanted.tables],
                "publication": wanted.publication,
            },
        )
        return await cursor.fetchall()


async def read_candidates(
    conn: AsyncConnection[TupleRow], tables: Iterable[Table]
) -> list[TableName]:
    """Read the names that may have been meant; none when no table is missing."""
    if all(table.oid is not None for table in tables):
        return []
    cursor = await conn.execute(_ALL_TABLES)
    return [TableName(schema, name) for schema, name in await cursor.fetchall()]


async def partition_root(
    conn: AsyncConnection[TupleRow], schema: str, name: str
) -> tuple[TableName, int] | None:
    """Return the table that a relation's rows belong to now, with its oid.

    That is the topmost ancestor of a partition, and the relation itself otherwise;
    None when there is no such relation (any more).
    """
    cursor = await conn.execute(
        """
        SELECT rn.nspname::text, r.relname::text, r.oid::int8
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_catalog.pg_class r ON r.oid = COALESCE(
                   CASE WHEN c.relispartition
                        THEN pg_catalog.pg_partition_root(c.oid) END, c.oid)
          JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
         WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'f')
        """,
        [schema, name],
    )
    row = await cursor.fetchone()
    return None if row is None else (TableName(row[0], row[1]), row[2])
