"""At the start of a session, and while it runs: stop before a row is missed.

The same judgements as ``cdc check``, but the first failure ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.errors import OperatorNeeded, RequirementMissing
from cdc.finding import Status
from cdc.requirements import slot as slots_row
from cdc.requirements.coverage import coverage
from cdc.requirements.server import demands, read_server
from cdc.requirements.tables import read_candidates, read_tables
from cdc.requirements.wanted import SourceFacts
from slots.catalog import get_slot
from slots.connect import translated
from slots.errors import SlotLost, SlotMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from cdc.requirements.server import Server
    from cdc.requirements.tables import Table
    from cdc.requirements.wanted import Wanted
    from slots.state import Slot

# format_type() leaves a schema out when it is on the search path, as wal2json does:
# both connections pin an empty one.
_BYTEA_TYPES: Final = """
WITH RECURSIVE bytes(oid) AS (
    SELECT 'pg_catalog.bytea'::pg_catalog.regtype::oid
    UNION
    SELECT t.oid FROM pg_catalog.pg_type t
      JOIN bytes b ON t.typbasetype = b.oid AND t.typtype = 'd'
)
SELECT oid::int8 FROM bytes
"""


async def require(conn: AsyncConnection[TupleRow], wanted: Wanted) -> SourceFacts:
    """Return what the source is, when a session may start on it.

    Reads catalogs that any role may read. The right to replicate is not asked for
    here: the replication connection itself is the proof.

    Raises:
        RequirementMissing: something is not there; the message and hint name the first.
        SlotMissing: there is no such slot.
        SlotLost: the slot has been invalidated.

    """
    with translated():
        server = await read_server(conn)
        _refuse(demands(server, wanted))
        slot = await get_slot(conn, wanted.slot)
        _refuse_slot(slot, server, wanted)
        tables = await _read_covered(conn, wanted, server.version)
        types = await (await conn.execute(_BYTEA_TYPES)).fetchall()
    if slot is None:
        raise AssertionError("a missing slot has been refused")
    return SourceFacts(
        server_version=server.version,
        system_id=server.system_id,
        timeline=server.timeline,
        database=server.database,
        server_encoding=server.encoding,
        slot=slot,
        tables={table.table_name: table.oid or 0 for table in tables},
        partitioned=frozenset(
            table.table_name for table in tables if table.is_partitioned
        ),
        bytea_types=frozenset(oid for (oid,) in types),
        wal_sender_timeout_s=server.wal_sender_timeout_ms / 1000,
    )


async def still_covered(
    conn: AsyncConnection[TupleRow], wanted: Wanted, facts: SourceFacts
) -> None:
    """Return when every wanted row and column still arrives; one query.

    Raises:
        RequirementMissing: a table, the publication or a column no longer fits.
        OperatorNeeded: a table is not the one the session started with; rows written
            before the publication had it may never arrive.

    """
    with translated():
        tables = await _read_covered(conn, wanted, facts.server_version)
    for table in tables:
        if table.oid != facts.tables[table.table_name]:
            raise OperatorNeeded(
                f"table {table.table_name} was dropped and made again while the relay"
                " ran; rows committed in between may not be in the stream",
                hint="compare the table with the broker, then start the relay again",
            )


async def _read_covered(
    conn: AsyncConnection[TupleRow], wanted: Wanted, server_version: int
) -> list[Table]:
    tables = await read_tables(conn, wanted, server_version)
    existing = await read_candidates(conn, tables)
    _refuse(coverage(tables, wanted, server_version, existing))
    return tables


def _refuse_slot(slot: Slot | None, server: Server, wanted: Wanted) -> None:
    for found in slots_row.slot_demands(slot, server, wanted):
        if found.status is not Status.FAILURE:
            continue
        if slot is None:
            raise SlotMissing(found.detail, hint=found.remedy)
        if found.name == slots_row.STATUS:
            raise SlotLost(found.detail, hint=found.remedy)
        raise requirement_missing(found)


def _refuse(findings: Iterable[Finding]) -> None:
    for found in findings:
        if found.status is Status.FAILURE:
            raise requirement_missing(found)


def requirement_missing(found: Finding) -> RequirementMissing:
    """Return the error that a failed requirement is, remedy and all."""
    return RequirementMissing(found.detail, hint=found.remedy)
