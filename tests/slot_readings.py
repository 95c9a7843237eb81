"""Readings made by hand, for tests of what is computed from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from slots.lsn import Lsn
from slots.state import Blocker, Reading, Server, Slot, WalStatus
from slots.state.units import GB, MB

START = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
BEGIN = 100 * GB


def at(seconds: float) -> datetime:
    """Return a moment after the start."""
    return START + timedelta(seconds=seconds)


def server(seconds: float = 0.0, *, wal: int | None = BEGIN, **changes: Any) -> Server:
    """Return a server of version 18 with a limit of 1000 MB a slot."""
    facts: dict[str, Any] = {
        "at": at(seconds),
        "started_at": START - timedelta(days=1),
        "version": 180006,
        "database": "postgres",
        "role": "ops",
        "is_in_recovery": False,
        "wal_position": None if wal is None else Lsn(wal),
        "wal_level": "logical",
        "max_slots": 10,
        "slot_wal_limit_bytes": 1000 * MB,
        "max_wal_bytes": 1024 * MB,
        "checkpoint_timeout_s": 300,
        "idle_slot_timeout_s": 0,
        "synchronized_standby_slots": (),
        "sees_sessions": True,
    }
    return Server(**(facts | changes))


def slot(name: str = "a", **changes: Any) -> Slot:
    """Return a logical slot that somebody reads and that holds nothing."""
    facts: dict[str, Any] = {
        "slot_type": "logical",
        "plugin": "pgoutput",
        "database": "shop",
        "active": True,
        "active_pid": 42,
        "active_application": "reader",
        "restart_lsn": Lsn(BEGIN),
        "confirmed_flush_lsn": Lsn(BEGIN),
        "wal_status": WalStatus.RESERVED,
        "safe_wal_bytes": 1000 * MB,
        "catalog_xmin_age": 5,
    }
    return Slot(name=name, **(facts | changes))


def idle(name: str = "a", **changes: Any) -> Slot:
    """Return a slot that nobody reads."""
    nobody = {"active": False, "active_pid": None, "active_application": None}
    return slot(name, **(nobody | changes))


def behind(lag: int, gap: int = 0, **changes: Any) -> Slot:
    """Return a slot whose consumer is behind a server that is at BEGIN."""
    return slot(
        confirmed_flush_lsn=Lsn(BEGIN - lag),
        restart_lsn=Lsn(BEGIN - lag - gap),
        safe_wal_bytes=1000 * MB - lag - gap,
        **changes,
    )


def reading(
    *slots: Slot,
    seconds: float = 0.0,
    wal: int | None = BEGIN,
    blockers: tuple[Blocker, ...] = (),
    **changes: Any,
) -> Reading:
    """Return a reading of these slots."""
    return Reading(
        server=server(seconds, wal=wal, **changes),
        slots=slots,
        blockers=blockers,
        blocker_count=len(blockers),
    )
