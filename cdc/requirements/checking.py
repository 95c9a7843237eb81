"""Test every requirement, one finding each; what cannot be said is a finding too."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cdc import finding
from cdc.finding import Status
from cdc.requirements import access
from cdc.requirements.cautions import cautions
from cdc.requirements.coverage import coverage
from cdc.requirements.server import demands, read_server, room
from cdc.requirements.slot import slot_demands, slot_use
from cdc.requirements.tables import read_candidates, read_tables
from slots.catalog import get_slot
from slots.connect import address, connect, translated
from slots.errors import SlotError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from cdc.requirements.server import Server
    from cdc.requirements.wanted import Wanted
    from slots.connect import Target
    from slots.state import Slot

_LIMIT_S: Final = 20.0
"""For everything together; a server that answers at all needs a tenth of a second."""


async def check(target: Target, wanted: Wanted) -> list[Finding]:
    """Test everything a run needs from Postgres.

    The server is tried once. Nothing is consumed from the slot and nothing is changed;
    a temporary slot that proves that the plugin loads is gone at the end.
    """
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(_LIMIT_S):
            await _collect(target, wanted, findings)
    except SlotError as exc:
        findings.append(
            finding.failure("postgres.connection", str(exc), exc.hint or "try again")
        )
    except TimeoutError:
        findings.append(
            finding.failure(
                "postgres.connection",
                f"{address(target)} did not answer within {_LIMIT_S:g} s",
                "look whether the server is overloaded, then try again",
            )
        )
    return findings


async def _collect(target: Target, wanted: Wanted, findings: list[Finding]) -> None:
    async with await connect(target, timeout_s=access.CONNECT_TIMEOUT_S) as conn:
        findings.append(
            finding.ok("postgres.connection", f"connected to {address(target)}")
        )
        with translated():
            server = await read_server(conn)
            findings.append(access.pooler(conn, server))
            demanded = list(demands(server, wanted))
            findings.extend(demanded)
            right = await access.replication_right(target, server)
            findings.append(right)
            slot = await get_slot(conn, wanted.slot)
            findings.extend(
                room(
                    server,
                    needs_slot=slot is None,
                    needs_wal_sender=slot is None or not slot.active,
                )
            )
            findings.extend(slot_demands(slot, server, wanted))
            if slot is not None:
                findings.append(slot_use(slot))
            findings.extend(await _coverage(conn, wanted, server))
            findings.extend(cautions(server, datetime.now(UTC)))
            if _may_try_plugin([*demanded, right], server, slot):
                findings.append(await access.plugin_loads(conn, wanted))


async def _coverage(
    conn: AsyncConnection[TupleRow], wanted: Wanted, server: Server
) -> list[Finding]:
    tables = await read_tables(conn, wanted, server.version)
    existing = await read_candidates(conn, tables)
    return list(coverage(tables, wanted, server.version, existing))


def _may_try_plugin(before: list[Finding], server: Server, slot: Slot | None) -> bool:
    """Tell whether a trial can say more than what is known already."""
    if any(found.status is Status.FAILURE for found in before):
        return False
    if server.is_standby:  # a slot there waits for a record of the primary
        return False
    return slot is None or not slot.active
