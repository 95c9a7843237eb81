"""Readings as JSON: the same keys from every server version, null for what it lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import typer

from slots.state import (
    budget,
    causes,
    health,
    server_health,
    stake,
    time_to_loss_s,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from slots.state import Finding, History, Limits, Reading, Slot

SCHEMA_VERSION: Final = 1


def print_json(value: object) -> None:
    """Print a document."""
    typer.echo(json.dumps(value, indent=2))


def listing(
    reading: Reading, slots: Iterable[Slot], history: History, limits: Limits
) -> dict[str, Any]:
    """Return what ``slots list`` shows."""
    return {
        "schema_version": SCHEMA_VERSION,
        "server": server(reading),
        "findings": _findings(server_health(reading, limits)),
        "slots": [one_slot(reading, slot, history, limits) for slot in slots],
    }


def server(reading: Reading) -> dict[str, Any]:
    """Return what is known of the server."""
    found = reading.server
    return {
        "at": found.at.isoformat(),
        "version": found.version,
        "is_in_recovery": found.is_in_recovery,
        "wal_position": _text(found.wal_position),
        "wal_level": found.wal_level,
        "max_replication_slots": found.max_slots,
        "max_slot_wal_keep_bytes": found.slot_wal_limit_bytes,
        "max_wal_bytes": found.max_wal_bytes,
        "idle_replication_slot_timeout_s": found.idle_slot_timeout_s,
        "synchronized_standby_slots": (
            None
            if found.synchronized_standby_slots is None
            else list(found.synchronized_standby_slots)
        ),
        "sees_sessions": found.sees_sessions,
        "open_write_transactions": reading.blocker_count,
    }


def one_slot(
    reading: Reading, slot: Slot, history: History, limits: Limits
) -> dict[str, Any]:
    """Return everything about a slot."""
    trend = history.trend(slot)
    left = budget(reading, slot, limits)
    found = health(reading, slot, trend, limits)
    return {
        "name": slot.name,
        "slot_type": slot.slot_type,
        "plugin": slot.plugin,
        "database": slot.database,
        "temporary": slot.temporary,
        "active": slot.active,
        "active_pid": slot.active_pid,
        "active_user": slot.active_user,
        "active_application": slot.active_application,
        "active_address": slot.active_address,
        "active_state": slot.active_state,
        "active_reply_at": _moment(slot.active_reply_at),
        "wal_status": _text(slot.wal_status),
        "restart_lsn": _text(slot.restart_lsn),
        "confirmed_flush_lsn": _text(slot.confirmed_flush_lsn),
        "retained_bytes": reading.retained_bytes(slot),
        "lag_bytes": reading.lag_bytes(slot),
        "transaction_gap_bytes": reading.gap_bytes(slot),
        "safe_bytes": None if left is None else left.safe_bytes,
        "budget_used": None if left is None else round(left.share, 4),
        "growth_bytes_s": trend.growth_bytes_s,
        "time_to_loss_s": time_to_loss_s(left, trend),
        "xmin_age": slot.xmin_age,
        "catalog_xmin_age": slot.catalog_xmin_age,
        "inactive_since": _moment(slot.inactive_since),
        "inactive_s": trend.inactive_s,
        "stuck_s": trend.stuck_s,
        "two_phase": slot.two_phase,
        "two_phase_at": _text(slot.two_phase_at),
        "failover": slot.failover,
        "synced": slot.synced,
        "conflicting": slot.conflicting,
        "invalidation_reason": slot.invalidation_reason,
        "decoded_transactions": slot.decoded_transactions,
        "verdict": worst(found).word,
        "findings": _findings(found),
    }


def explanation(
    reading: Reading, slot: Slot, history: History, limits: Limits
) -> dict[str, Any]:
    """Return what ``slots why`` says."""
    trend = history.trend(slot)
    return {
        "schema_version": SCHEMA_VERSION,
        "slot": one_slot(reading, slot, history, limits),
        "stake": stake(reading, slot, trend, limits),
        "causes": [
            {
                "who": cause.who,
                "held_bytes": cause.held_bytes,
                "text": cause.text,
                "remedy": cause.remedy,
            }
            for cause in causes(reading, slot, trend)
        ],
        "blockers": [
            {
                "xid": one.xid,
                "age_transactions": one.age,
                "pid": one.pid,
                "gid": one.gid,
                "database": one.database,
                "user": one.user,
                "application": one.application,
                "address": one.address,
                "state": one.state,
                "open_s": one.open_s,
                "query_s": one.query_s,
            }
            for one in reading.blockers
        ],
    }


def _findings(found: Iterable[Finding]) -> list[dict[str, str]]:
    return [
        {
            "alarm": one.kind.value,
            "level": one.level.word,
            "text": one.text,
            "remedy": one.remedy,
        }
        for one in found
    ]


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
