"""The outbox tables as they are read: columns, row filter, and whether we may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql
from psycopg.rows import class_row

from cdc.errors import ColumnMissing, RequirementMissing
from cdc.requirements.tables import read_tables
from cdc.wal.changes import BYTEA_OID, Column, ColumnType, Relation
from slots.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import LiteralString

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import Mapping, TableName
    from cdc.requirements import Wanted
    from cdc.requirements.tables import Table

_TIME_TYPES: Final = frozenset(
    {"date", "timestamp without time zone", "timestamp with time zone"}
)

_GENERATED_SINCE: Final = 180000
"""Before, pgoutput sends no generated column, whatever the catalog lists."""

# A domain is taken for the type below it: that is what its values look like.
_COLUMNS: Final = """
WITH RECURSIVE typed AS (
    SELECT a.attrelid, a.attname, a.attnum, t.oid, t.typtype, t.typbasetype
      FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT d.attrelid, d.attname, d.attnum, t.oid, t.typtype, t.typbasetype
      FROM typed d JOIN pg_catalog.pg_type t ON t.oid = d.typbasetype
     WHERE d.typtype = 'd'
)
SELECT c.oid::int8 AS "table",
       y.attname::text AS name,
       y.oid::int8 AS type,
       pg_catalog.format_type(y.oid, NULL) AS type_name,
       pg_catalog.has_column_privilege(c.oid, y.attnum, 'SELECT') AS is_readable,
       pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') AS schema_is_open,
       pg_catalog.row_security_active(c.oid) AS has_policies,
       current_user::text AS role
  FROM typed y
  JOIN pg_catalog.pg_class c ON c.oid = y.attrelid
 WHERE y.typtype <> 'd'
 ORDER BY c.oid, y.attnum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    table: int
    name: str
    type: int
    type_name: str
    is_readable: bool
    schema_is_open: bool
    has_policies: bool
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxTable:
    """A table to be read.

    Attributes:
        name: as it is configured.
        relation: its layout, as far as the mapping needs it.
        is_partitioned: its rows are in its partitions. Those of tables that only
            inherit from it are none of its own.
        row_filter: of the publication, as SQL; None when every row is streamed.
        id_column: what an event's id is in; None when none is mapped.
        key_column: what its key is in; likewise.
        time_column: tells when a row was made; None when it is not there, or no time.

    """

    name: TableName
    relation: Relation
    is_partitioned: bool
    row_filter: str | None
    id_column: str | None
    key_column: str | None
    time_column: str | None


async def outbox_tables(
    connection: AsyncConnection[TupleRow],
    wanted: Wanted,
    mapping: Mapping,
    *,
    time_column: str,
) -> list[OutboxTable]:
    """Return the configured tables, in their order, ready to be read.

    Raises:
        RequirementMissing: a table is missing, or is none.
        ColumnMissing: a mapped column is.
        PermissionDenied: we may not read one; the hint is the statement that lets us.

    """
    version = connection.info.server_version
    tables = await read_tables(connection, wanted, version)
    oids = [table.oid for table in tables if table.oid is not None]
    async with connection.cursor(row_factory=class_row(_Column)) as cursor:
        await cursor.execute(_COLUMNS, (oids,))
        columns = await cursor.fetchall()
    return [
        _outbox_table(
            table,
            wanted,
            mapping,
            [column for column in columns if column.table == table.oid],
            time_column=time_column,
            version=version,
        )
        for table in tables
    ]


def _outbox_table(
    table: Table,
    wanted: Wanted,
    mapping: Mapping,
    columns: list[_Column],
    *,
    time_column: str,
    version: int,
) -> OutboxTable:
    if table.kind not in ("r", "p"):
        what = "does not exist" if table.oid is None else "is no table"
        raise RequirementMissing(
            f"{table.table_name} {what}", hint="correct CDC_OUTBOX__TABLES"
        )
    by_name = {column.name: column for column in columns}
    streamed = [name for name in by_name if _is_streamed(name, table, wanted, version)]
    needed = [_first(group, streamed, table) for group in mapping.required_columns()]
    chosen = [by_name[name] for name in dict.fromkeys(needed)]
    _demand(table.table_name, chosen)
    time = by_name.get(time_column)
    roles = mapping.columns
    return OutboxTable(
        name=table.table_name,
        relation=Relation(
            oid=table.oid,
            schema=table.schema,
            name=table.name,
            columns=tuple(_column(column) for column in chosen),
        ),
        is_partitioned=table.is_partitioned,
        row_filter=table.row_filter if wanted.uses_publication else None,
        id_column=_first(roles.id, streamed, table) if roles.id else None,
        key_column=_first(roles.key, streamed, table) if roles.key else None,
        time_column=time_column if time and time.type_name in _TIME_TYPES else None,
    )


def _is_streamed(name: str, table: Table, wanted: Wanted, version: int) -> bool:
    """Tell whether a column comes in the stream: only what does is the event's."""
    generated = table.generated[table.columns.index(name)]
    if generated == "v" or not wanted.uses_publication:
        return generated != "v"
    if generated and version < _GENERATED_SINCE:
        return False
    return table.published_columns is None or name in table.published_columns


def _first(group: tuple[str, ...], streamed: list[str], table: Table) -> str:
    for name in group:
        if name in streamed:
            return name
    raise ColumnMissing(
        f"table {table.table_name} has no column {' or '.join(map(repr, group))} that"
        f" is streamed (it has {', '.join(streamed)})"
    )


def _column(column: _Column) -> Column:
    is_bytea = column.type == BYTEA_OID
    return Column(column.name, ColumnType.BYTEA if is_bytea else ColumnType.TEXT)


def _demand(table: TableName, columns: Iterable[_Column]) -> None:
    """Raise PermissionDenied unless all of the table's rows can be read."""
    for column in columns:
        role = sql.Identifier(column.role)
        if not column.schema_is_open:
            raise PermissionDenied(
                f"role {column.role} may not use schema {table.schema}",
                hint=_statement(
                    "GRANT USAGE ON SCHEMA {} TO {}", sql.Identifier(table.schema), role
                ),
            )
        if not column.is_readable:
            raise PermissionDenied(
                f"role {column.role} may not read column {column.name} of {table}",
                hint=grant_select(table, column.role),
            )
        if column.has_policies:
            raise PermissionDenied(
                f"row security of {table} hides rows from role {column.role}, which"
                " the stream carries",
                hint=_statement("ALTER ROLE {} BYPASSRLS", role)
                + ", or read it as the table's owner",
            )


def grant_select(table: TableName, role: str) -> str:
    """Return the statement that lets a role read a table."""
    return _statement(
        "GRANT SELECT ON {} TO {}",
        sql.Identifier(table.schema, table.name),
        sql.Identifier(role),
    )


def _statement(template: LiteralString, *parts: sql.Composable) -> str:
    return sql.SQL(template).format(*parts).as_string(None)
