"""How old a row is, and whether everything of its transaction is acknowledged: SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from cdc.errors import RequirementMissing
from cdc.xid import SNAPSHOT_XMAX, WIDENED

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName

_TIME_TYPES: Final = ("timestamptz", "timestamp", "date")
_COMMITTED: Final = sql.SQL("pg_catalog.pg_xact_commit_timestamp(xmin)")

_TYPE: Final = """
SELECT t.typname::text, pg_catalog.current_setting('track_commit_timestamp') = 'on'
  FROM (SELECT) AS one
  LEFT JOIN pg_catalog.pg_attribute a
         ON a.attrelid = %s::oid AND a.attname = %s AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """What tells the age of a table's rows.

    Attributes:
        expression: of a row; SQL.
        type_name: of the expression: ``timestamptz``, ``timestamp`` (taken as UTC) or
            ``date``.
        column: None where it is the commit time, which a server forgets after a while,
            and does not know of transactions from before it tracked them.

    """

    expression: sql.Composable
    type_name: str
    column: str | None

    @property
    def type(self) -> sql.Composable:
        """The name of the type, for a statement."""
        return sql.Identifier("pg_catalog", self.type_name)

    def is_over(self, keep_s: float) -> sql.Composed:
        """Return the condition for rows older than so many seconds."""
        return sql.SQL("{} < (pg_catalog.now() - {}::interval)::{}").format(
            self.expression, f"{keep_s} seconds", self.type
        )


async def age_of(
    connection: AsyncConnection[TupleRow], table: TableName, oid: int, column: str
) -> Age:
    """Return what tells the age of a table's rows.

    Raises:
        RequirementMissing: there is no such column, and commit times are not tracked.

    """
    cursor = await connection.execute(_TYPE, [oid, column])
    type_name, tracks = await cursor.fetchone() or (None, False)
    if type_name in _TIME_TYPES:
        return Age(
            expression=sql.Identifier(column), type_name=type_name, column=column
        )
    if type_name is None and tracks:
        return Age(expression=_COMMITTED, type_name="timestamptz", column=None)
    wrong = f"is of type {type_name}" if type_name else "does not exist"
    raise RequirementMissing(
        f"column {column!r} of {table} {wrong}: how old a row is cannot be told",
        hint="CDC_RETENTION__AGE_COLUMN names another one; or"
        " ALTER SYSTEM SET track_commit_timestamp = on; and restart the server",
    )


def is_acknowledged(horizon: int) -> sql.Composed:
    """Return the condition for rows of transactions older than the horizon."""
    widened = WIDENED.format(xmin="xmin", xmax=SNAPSHOT_XMAX)
    return sql.SQL("{} < {}").format(sql.SQL(widened), horizon)
