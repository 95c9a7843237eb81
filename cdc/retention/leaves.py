"""The tables that hold an outbox's rows: itself, or its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from cdc.errors import RequirementMissing
from slots.errors import PermissionDenied

if TYPE_CHECKING:
    from typing import LiteralString

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName

# A bound is a time only where the parent is partitioned by a single column of such a
# type: of a partition that is divided further the leaves have bounds of their own.
_LEAVES: Final = """
SELECT n.nspname::text, c.relname::text, c.oid::int8,
       (SELECT bound[1]
          FROM pg_catalog.pg_inherits i
          JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = i.inhparent
          JOIN pg_catalog.pg_attribute a
            ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
          JOIN pg_catalog.pg_type y ON y.oid = a.atttypid,
               pg_catalog.regexp_match(
                   pg_catalog.pg_get_expr(c.relpartbound, c.oid),
                   $$ TO \\('([^']+)'\\)$$) AS bound
         WHERE i.inhrelid = c.oid AND c.oid <> %(root)s::oid
           AND p.partstrat = 'r' AND p.partnatts = 1
           AND y.typname IN ('timestamptz', 'timestamp', 'date')),
       pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'),
       current_user::text,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_table_privilege(c.oid, 'SELECT')
           AND pg_catalog.has_table_privilege(c.oid, 'DELETE'),
       pg_catalog.row_security_active(c.oid)
  FROM (SELECT relid FROM pg_catalog.pg_partition_tree(%(root)s::oid) WHERE isleaf
         UNION SELECT %(root)s::oid) AS t
  JOIN pg_catalog.pg_class c ON c.oid = t.relid AND c.relkind <> 'p'
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 ORDER BY 4 NULLS LAST, 2
"""
_OID: Final = """
SELECT c.oid::int8 FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A table that holds rows, and what our role may do with it.

    Attributes:
        upper: its upper bound as text, where it is a partition by time; None for one
            without an end (DEFAULT, MAXVALUE) and for any other table.
        is_ours: our role may drop it.
        may_lock: our role may lock single rows.
        role: ours.

    """

    schema: str
    name: str
    oid: int
    upper: str | None
    is_ours: bool
    may_lock: bool
    role: str

    def __str__(self) -> str:
        """Return the name as the server prints it, without quotes."""
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The name, for a statement."""
        return sql.Identifier(self.schema, self.name)


async def oid_of(connection: AsyncConnection[TupleRow], table: TableName) -> int:
    """Return a table's oid.

    Raises:
        RequirementMissing: there is no such table.

    """
    cursor = await connection.execute(_OID, [table.schema, table.name])
    row = await cursor.fetchone()
    if row is None:
        raise RequirementMissing(f"table {table} does not exist")
    return int(row[0])


async def leaves_of(connection: AsyncConnection[TupleRow], oid: int) -> list[Leaf]:
    """Return the tables that hold the rows of a table, oldest bound first.

    Raises:
        PermissionDenied: rows of one of them cannot be read or deleted.

    """
    cursor = await connection.execute(_LEAVES, {"root": oid})
    leaves = []
    for *known, is_open, is_permitted, has_policies in await cursor.fetchall():
        schema, name, leaf_oid, upper, is_ours, may_lock, role = known
        leaf = Leaf(
            schema=schema,
            name=name,
            oid=leaf_oid,
            upper=upper,
            is_ours=is_ours,
            may_lock=may_lock,
            role=role,
        )
        if not (is_open and is_permitted) or has_policies:
            raise _denied(leaf, is_open=is_open, is_permitted=is_permitted)
        leaves.append(leaf)
    return leaves


def _denied(leaf: Leaf, *, is_open: bool, is_permitted: bool) -> PermissionDenied:
    role = sql.Identifier(leaf.role)
    if not is_open:
        schema = sql.Identifier(leaf.schema)
        return PermissionDenied(
            f"role {leaf.role} may not use schema {leaf.schema}",
            hint=statement("GRANT USAGE ON SCHEMA {} TO {}", schema, role),
        )
    if not is_permitted:
        return PermissionDenied(
            f"role {leaf.role} may not delete rows of {leaf}",
            hint=statement("GRANT SELECT, DELETE ON {} TO {}", leaf.identifier, role),
        )
    return PermissionDenied(
        f"row security of {leaf} hides rows from role {leaf.role}",
        hint=statement("ALTER ROLE {} BYPASSRLS", role),
    )


def statement(template: LiteralString, *parts: sql.Composable) -> str:
    """Return a statement with its names quoted."""
    return sql.SQL(template).format(*parts).as_string(None)
