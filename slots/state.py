"""What a replication slot is like, and what that means."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from slots.lsn import Lsn


class WalStatus(enum.StrEnum):
    """What the server says of the WAL a slot needs (pg_replication_slots)."""

    RESERVED = "reserved"
    """Within max_wal_size."""
    EXTENDED = "extended"
    """Beyond max_wal_size, kept for the slot."""
    UNRESERVED = "unreserved"
    """Beyond max_slot_wal_keep_size: the next checkpoint takes it."""
    LOST = "lost"
    """Gone; the slot is of no use any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A row of pg_replication_slots; None where the server has no such column.

    Attributes:
        catalog_xmin_age: in transactions.
        safe_wal_bytes: what may still be written until the slot is in danger; None
            when the server sets no limit or the slot is lost.
        inactive_since: since when nobody streams from it (17 and later).
        invalidation_reason: why it is lost (17 and later).

    """

    name: str
    plugin: str | None
    slot_type: str
    database: str | None
    temporary: bool
    active: bool
    active_pid: int | None
    active_application: str | None
    active_address: str | None
    catalog_xmin_age: int | None
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    wal_status: WalStatus | None
    safe_wal_bytes: int | None
    two_phase: bool | None
    conflicting: bool | None
    invalidation_reason: str | None
    inactive_since: datetime | None
    failover: bool | None
    synced: bool | None
