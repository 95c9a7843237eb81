"""Replication slots as the catalog has them: read, made, dropped, moved.

The row is fetched as JSON, so that one query serves every server version and a column
that a server does not have is simply not there.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from slots.connect import translated
from slots.errors import SlotMissing
from slots.lsn import Lsn
from slots.state import Slot, WalStatus

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

_SLOTS: Final = """
SELECT pg_catalog.to_jsonb(s) || pg_catalog.jsonb_build_object(
           'application_name', a.application_name,
           'client_addr', pg_catalog.host(a.client_addr),
           'catalog_xmin_age', pg_catalog.age(s.catalog_xmin))
  FROM pg_catalog.pg_replication_slots AS s
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = s.active_pid
"""


async def list_slots(connection: AsyncConnection[TupleRow]) -> list[Slot]:
    """Return every slot of the cluster, by name."""
    with translated():
        cursor = await connection.execute(_SLOTS + " ORDER BY s.slot_name")
        return [_slot(row[0]) for row in await cursor.fetchall()]


async def get_slot(connection: AsyncConnection[TupleRow], name: str) -> Slot | None:
    """Return a slot, None when there is none of that name."""
    with translated():
        cursor = await connection.execute(
            _SLOTS + " WHERE s.slot_name::text = %s", (name,)
        )
        row = await cursor.fetchone()
    return None if row is None else _slot(row[0])


async def advance_slot(
    connection: AsyncConnection[TupleRow], name: str, position: Lsn
) -> Lsn:
    """Move a slot's confirmed position forward; return where it is then.

    A position at or below the present one leaves it where it is. Everything up to the
    position will never be sent: pass nothing that is not delivered, or given up.

    Raises:
        SlotMissing: there is no such slot.
        SlotBusy: somebody streams from it (55006).
        ServerRefused: it is lost (55000), or a right is missing.

    """
    slot = await get_slot(connection, name)
    if slot is None:
        raise SlotMissing(f"slot {name} does not exist")
    if slot.confirmed_flush_lsn is not None and position <= slot.confirmed_flush_lsn:
        return slot.confirmed_flush_lsn
    with translated():
        cursor = await connection.execute(
            "SELECT end_lsn::text FROM pg_catalog.pg_replication_slot_advance(%s, %s)",
            (name, str(position)),
        )
        row = await cursor.fetchone()
    return Lsn.parse(row[0]) if row is not None else position


def _slot(row: dict[str, Any]) -> Slot:
    return Slot(
        name=row["slot_name"],
        plugin=row["plugin"],
        slot_type=row["slot_type"],
        database=row["database"],
        temporary=row["temporary"],
        active=row["active"],
        active_pid=row["active_pid"],
        active_application=row["application_name"],
        active_address=row["client_addr"],
        catalog_xmin_age=row["catalog_xmin_age"],
        restart_lsn=_lsn(row["restart_lsn"]),
        confirmed_flush_lsn=_lsn(row["confirmed_flush_lsn"]),
        wal_status=WalStatus(row["wal_status"]) if row["wal_status"] else None,
        safe_wal_bytes=row["safe_wal_size"],
        two_phase=row.get("two_phase"),
        conflicting=row.get("conflicting"),
        invalidation_reason=row.get("invalidation_reason"),
        inactive_since=_moment(row.get("inactive_since")),
        failover=row.get("failover"),
        synced=row.get("synced"),
    )


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
