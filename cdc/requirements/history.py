"""Which history a server is on, and what its publication is made of.

What a stored position is compared with; see :mod:`cdc.position`. Any role that may
replicate may ask all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from cdc.position import Sample, Seen, SlotSeen
from slots.catalog import get_slot
from slots.connect import translated
from slots.lsn import Lsn

if TYPE_CHECKING:
    from typing import Any

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.requirements.wanted import Wanted
    from slots.state import Slot

_SCHEMAS_SINCE: Final = 150000

# A row that is changed, or made again, has another xmin or another oid.
_PUBLICATION: Final = """
SELECT 'publication ' || p.pubname, p.oid::text || ':' || p.xmin::text
  FROM pg_catalog.pg_publication p
 WHERE p.pubname = %(publication)s
UNION ALL
SELECT 'table ' || w.schema || '.' || w.name, r.oid::text || ':' || r.xmin::text
  FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]),
                  pg_catalog.unnest(%(names)s::text[])) AS w(schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
  JOIN pg_catalog.pg_publication_rel r ON r.prrelid = c.oid
  JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
 WHERE p.pubname = %(publication)s
"""
_BY_SCHEMA: Final = """
UNION ALL
SELECT 'schema ' || n.nspname, s.oid::text || ':' || s.xmin::text
  FROM pg_catalog.pg_publication_namespace s
  JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid
  JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid
 WHERE p.pubname = %(publication)s AND n.nspname = ANY (%(schemas)s::text[])
"""

_STANDBY: Final = "SELECT pg_catalog.pg_is_in_recovery()"

# The snapshot is taken before the insert position is read, and after the statement's
# timestamp: what each of them promises holds in this order only.
_SAMPLE: Final = """
SELECT pg_catalog.pg_snapshot_xmin(s)::text, pg_catalog.pg_snapshot_xmax(s)::text,
       CASE WHEN NOT pg_catalog.pg_is_in_recovery()
            THEN pg_catalog.pg_current_wal_insert_lsn()::text END,
       (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000)::int8
  FROM pg_catalog.pg_current_snapshot() AS s
"""


async def see(
    connection: AsyncConnection[TupleRow],
    line: AsyncConnection[TupleRow],
    wanted: Wanted,
) -> Seen:
    """Return what a stored position is compared with.

    Args:
        connection: an ordinary one.
        line: a replication connection that does not stream yet.
        wanted: slot, publication and tables.

    """
    with translated():
        system = await _row(line, "IDENTIFY_SYSTEM")
        timeline = int(system[1])
        (is_standby,) = await _row(connection, _STANDBY)
        slot = await get_slot(connection, wanted.slot)
        return Seen(
            system_id=str(system[0]),
            timeline=timeline,
            wal_position=Lsn.parse(system[2]),
            database=str(system[3]),
            slot=None if slot is None else _seen(slot, is_standby=is_standby),
            switches=await _switches(line, timeline),
            fingerprint=await fingerprint(connection, wanted),
            is_standby=is_standby,
        )


def _seen(slot: Slot, *, is_standby: bool) -> SlotSeen:
    return SlotSeen(
        confirmed=slot.confirmed_flush_lsn,
        is_lost=slot.is_lost,
        reason=slot.invalidation_reason or "",
        # A promoted server still says of its slots that they were synced.
        is_copy=bool(slot.synced) and is_standby,
    )


async def fingerprint(
    connection: AsyncConnection[TupleRow], wanted: Wanted
) -> dict[str, str]:
    """Return what the publication is made of; empty for a plugin that reads none.

    A value that differs says that the part was changed, or taken out and put back:
    rows committed in between may never arrive, and nothing else tells.
    """
    if not wanted.uses_publication:
        return {}
    query = _PUBLICATION
    if connection.info.server_version >= _SCHEMAS_SINCE:
        query += _BY_SCHEMA
    with translated():
        cursor = await connection.execute(
            query.encode(),
            {
                "publication": wanted.publication,
                "schemas": [table.schema for table in wanted.tables],
                "names": [table.name for table in wanted.tables],
            },
        )
        return dict(await cursor.fetchall())


async def sample(connection: AsyncConnection[TupleRow]) -> Sample | None:
    """Return the transactions of this moment; None on a standby."""
    with translated():
        xmin, xmax, lsn, at_ms = await _row(connection, _SAMPLE)
    if lsn is None:
        return None
    return Sample(int(xmin), int(xmax), Lsn.parse(lsn), at_ms)


async def _switches(line: AsyncConnection[TupleRow], timeline: int) -> dict[int, Lsn]:
    """Return where each earlier timeline was left ("TIMELINE_HISTORY", protocol)."""
    if timeline == 1:
        return {}
    query = sql.SQL("TIMELINE_HISTORY {}").format(timeline)
    cursor = await line.execute(query)
    result = cursor.pgresult
    content = b"" if result is None else result.get_value(0, 1) or b""
    lines = (line.split() for line in content.decode(errors="replace").splitlines())
    return {
        int(parts[0]): Lsn.parse(parts[1])
        for parts in lines
        if parts and not parts[0].startswith("#")
    }


async def _row(connection: AsyncConnection[TupleRow], query: str) -> tuple[Any, ...]:
    cursor = await connection.execute(query.encode())
    row = await cursor.fetchone()
    if row is None:
        raise AssertionError("a query that always has a row returned none")
    return row
