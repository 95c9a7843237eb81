"""A slot made anew for a relay, with the snapshot that the stream goes on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.position import Overlap
from slots.catalog import create_slot, create_slot_with_snapshot
from slots.connect import translated
from slots.errors import ServerRefused
from slots.lsn import Lsn

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.requirements import Wanted

FAILOVER_SINCE: Final = 170000
"""From here on standbys can copy a slot, which costs nothing where none does."""

_TOO_LARGE: Final = "40001"

# Whatever the transaction's snapshot shows has committed below the position.
_SHOWN: Final = """
SELECT pg_catalog.pg_current_snapshot()::text,
       pg_catalog.pg_current_wal_insert_lsn()::text
"""


async def make_slot(
    exporter: AsyncConnection[TupleRow],
    connection: AsyncConnection[TupleRow],
    wanted: Wanted,
    *,
    timeout_s: float,
) -> tuple[Lsn, str | None]:
    """Make a slot; return where it begins, and its snapshot if it has one.

    A server with very many transactions and savepoints open at once cannot export one
    (40001, "initial slot snapshot too large"). Then any snapshot taken behind the
    slot's beginning will do: see :func:`overlap_of`.

    Args:
        exporter: a replication connection that rests until the snapshot is imported.
        connection: an ordinary one.
        wanted: the slot's name and plugin.
        timeout_s: how long it may wait for open transactions.

    Raises:
        SlotNotReady: the time was up; the hint names whom it waited for.

    """
    failover = connection.info.server_version >= FAILOVER_SINCE
    try:
        return await create_slot_with_snapshot(
            exporter,
            connection,
            wanted.slot,
            plugin=wanted.plugin,
            failover=failover,
            timeout_s=timeout_s,
        )
    except ServerRefused as exc:
        if exc.sqlstate != _TOO_LARGE:
            raise
    begins_at = await create_slot(
        connection,
        wanted.slot,
        plugin=wanted.plugin,
        failover=failover,
        timeout_s=timeout_s,
    )
    return begins_at, None


async def overlap_of(connection: AsyncConnection[TupleRow]) -> Overlap:
    """Return what the connection's open snapshot shows of the stream's beginning.

    The stream brings that once more, and it is dropped there.
    """
    with translated():
        cursor = await connection.execute(_SHOWN)
        row = await cursor.fetchone()
    if row is None:
        raise AssertionError("a SELECT without FROM returned no row")
    return Overlap(row[0], Lsn.parse(row[1]))
