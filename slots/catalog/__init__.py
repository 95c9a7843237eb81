"""Replication slots in the catalog: read, made, dropped, moved and copied."""

from slots.catalog.changes import (
    advance_slot,
    copy_slot,
    create_slot,
    drop_slot,
)
from slots.catalog.exported import Exported, create_slot_with_snapshot
from slots.catalog.reading import get_slot, list_slots, read, wal_position

__all__ = [
    "Exported",
    "advance_slot",
    "copy_slot",
    "create_slot",
    "create_slot_with_snapshot",
    "drop_slot",
    "get_slot",
    "list_slots",
    "read",
    "wal_position",
]
