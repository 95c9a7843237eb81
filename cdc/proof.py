"""Is this the history that the stored position is of, asked without a stream.

A stream proves it by the anchor. Where the slot is gone, the table and the server's own
memory of transactions have to do: a volume that was put back and written on passes
every comparison of positions, and the stored horizon would point past rows that were
never published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import DataError, sql
from psycopg import errors as pg_errors

from slots.connect import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName
    from cdc.position import Anchor, Position

_US: Final = 1_000_000
_XID: Final = (1 << 32) - 1

# A transaction's end is remembered for as long as its rows are not frozen; its commit
# time, where track_commit_timestamp is on, likewise.
_TRANSACTION: Final = """
SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric,
       pg_catalog.current_setting('track_commit_timestamp')
"""


async def contradiction(
    connection: AsyncConnection[TupleRow], position: Position
) -> str:
    """Return why this cannot be the history of a position; empty when it can.

    Asked of the server's own memory: transaction ids only grow, and a commit has one
    time.
    """
    with translated():
        cursor = await connection.execute(_TRANSACTION)
        row = await cursor.fetchone()
    if row is None:
        raise AssertionError("a SELECT without FROM returned no row")
    next_xid, tracks = int(row[0]), row[1] == "on"
    seen = [sample.xmax for sample in position.samples]
    if position.horizon is not None:
        seen.append(position.horizon)
    highest = max(seen, default=0)
    if next_xid < highest:
        return f"its next transaction is {next_xid}, and {highest} has been seen before"
    if tracks and position.anchor is not None:
        return await _other_commit(connection, position.anchor)
    return ""


async def has_witness(
    connection: AsyncConnection[TupleRow],
    anchor: Anchor,
    tables: Sequence[tuple[TableName, str]],
) -> bool:
    """Tell whether the row of the last event is in one of the tables.

    Args:
        connection: may read the tables.
        anchor: the last transaction delivered.
        tables: each with the name of its id column.

    """
    for table, id_column in tables:
        query = sql.SQL(
            "SELECT (xmin::text::int8 - {xid}) & {mask} < {half} FROM {table}"
            " WHERE {id} = {value}"
        ).format(
            xid=anchor.xid,
            mask=_XID,
            half=1 << 31,
            table=sql.Identifier(table.schema, table.name),
            id=sql.Identifier(id_column),
            value=sql.Literal(anchor.event_id),
        )
        with translated():
            try:
                rows = await (await connection.execute(query)).fetchall()
            except DataError:  # an id of another table's type
                continue
        # A row inside a savepoint has a later id than its transaction, never an
        # earlier one.
        if any(is_later for (is_later,) in rows):
            return True
    return False


async def _other_commit(connection: AsyncConnection[TupleRow], anchor: Anchor) -> str:
    query = sql.SQL(
        "SELECT (extract(epoch FROM pg_catalog.pg_xact_commit_timestamp({}))"
        " * {})::int8"
    ).format(sql.SQL("{}::text::xid").format(str(anchor.xid)), _US)
    with translated():
        try:
            cursor = await connection.execute(query)
        except pg_errors.InvalidParameterValue:
            return f"it does not know transaction {anchor.xid}, the last one delivered"
        row = await cursor.fetchone()
    if row is None or row[0] is None or row[0] == anchor.committed_at_us:
        return ""  # None: too old to be remembered
    return f"transaction {anchor.xid}, the last one delivered, is another one on it"
