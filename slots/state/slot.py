"""A replication slot as the server shows it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from slots.lsn import Lsn

LOGICAL: Final = "logical"
PHYSICAL: Final = "physical"


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
        active_application: of whoever streams from it.
        active_address: likewise; None on a local socket, or without pg_monitor.
        active_state: of its walsender: ``catchup``, ``streaming``; likewise.
        active_reply_at: when its consumer has last reported, likewise.
        xmin_age: in transactions; what a standby's queries still have to see.
        catalog_xmin_age: in transactions; catalog rows kept for decoding.
        safe_wal_bytes: what may still be written until the slot is in danger, below
            zero once it is; None when the server sets no limit or the slot is lost.
        two_phase_at: from where prepared transactions are sent (18 and later).
        inactive_since: since when nobody streams from it (17 and later).
        invalidation_reason: why it is lost (17 and later).
        synced: copied here from a primary (17 and later).
        decoded_transactions: since it was made, or its statistics were reset.
        statistics_reset_at: when that was.

    """

    name: str
    slot_type: str
    plugin: str | None = None
    database: str | None = None
    temporary: bool = False
    active: bool = False
    active_pid: int | None = None
    active_user: str | None = None
    active_application: str | None = None
    active_address: str | None = None
    active_state: str | None = None
    active_reply_at: datetime | None = None
    xmin_age: int | None = None
    catalog_xmin_age: int | None = None
    restart_lsn: Lsn | None = None
    confirmed_flush_lsn: Lsn | None = None
    wal_status: WalStatus | None = None
    safe_wal_bytes: int | None = None
    two_phase: bool | None = None
    two_phase_at: Lsn | None = None
    failover: bool | None = None
    synced: bool | None = None
    conflicting: bool | None = None
    invalidation_reason: str | None = None
    inactive_since: datetime | None = None
    decoded_transactions: int | None = None
    statistics_reset_at: datetime | None = None

    @property
    def is_logical(self) -> bool:
        """Whether it is for decoding; otherwise it is a standby's or a backup's."""
        return self.slot_type == LOGICAL

    @property
    def is_lost(self) -> bool:
        """Whether it can never be streamed from again."""
        return (
            self.wal_status is WalStatus.LOST
            or self.invalidation_reason is not None
            or self.conflicting is True
        )

    @property
    def is_being_made(self) -> bool:
        """Whether its creation still waits for older write transactions to end.

        It has no confirmed position yet, and pins WAL already.
        """
        return self.is_logical and not self.is_lost and self.confirmed_flush_lsn is None

    @property
    def position(self) -> Lsn | None:
        """What its consumer has confirmed; a physical slot shows its restart_lsn."""
        return self.confirmed_flush_lsn if self.is_logical else self.restart_lsn
