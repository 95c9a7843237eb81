"""Whether the slot is ours to stream from: there, alive, of our plugin and database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc import finding
from cdc.requirements import statements
from slots.state import WalStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.finding import Finding
    from cdc.requirements.server import Server
    from cdc.requirements.wanted import Wanted
    from slots.state import Slot

MISSING = "slot.exists"
STATUS = "slot.wal_status"


def slot_demands(
    slot: Slot | None, server: Server, wanted: Wanted
) -> Iterator[Finding]:
    """Judge the slot's row; a slot of another kind says nothing more."""
    if slot is None:
        yield finding.failure(
            MISSING,
            f"slot {wanted.slot} does not exist",
            "`cdc init`, or " + statements.create_slot(wanted.slot, wanted.plugin),
        )
        return
    if slot.slot_type != "logical":
        yield finding.failure(
            MISSING,
            f"slot {wanted.slot} is a {slot.slot_type} slot, of a standby or a backup",
            "choose another name: CDC_SLOT__NAME",
        )
        return
    yield finding.ok(MISSING, f"slot {wanted.slot} exists")
    yield _status(slot)
    yield _plugin(slot, wanted)
    yield _database(slot, server)
    if slot.temporary or (slot.synced and server.is_standby):
        yield _not_ours(slot)


def slot_use(slot: Slot) -> Finding:
    """Judge whether somebody streams from the slot already."""
    name = "slot.free"
    if not slot.active:
        return finding.ok(name, f"nobody streams from slot {slot.name}")
    application = slot.active_application or "unknown application"
    return finding.warning(
        name,
        f"slot {slot.name} is in use by pid {slot.active_pid} ({application})",
        "fine when that is this relay; otherwise stop it, or"
        f" SELECT pg_terminate_backend({slot.active_pid});",
    )


def _status(slot: Slot) -> Finding:
    if slot.wal_status is WalStatus.LOST:
        reason = f" ({slot.invalidation_reason})" if slot.invalidation_reason else ""
        return finding.failure(
            STATUS,
            f"slot {slot.name} is lost{reason}: changes after"
            f" {slot.confirmed_flush_lsn} are gone from the WAL",
            "what was committed since may be missing in the broker: `cdc resnapshot`"
            " makes the slot anew and publishes what the table still has",
        )
    if slot.wal_status is WalStatus.UNRESERVED:
        return finding.warning(
            STATUS,
            f"slot {slot.name} is beyond max_slot_wal_keep_size: the next checkpoint"
            " may take its WAL away",
            "start the relay now, and raise max_slot_wal_keep_size",
        )
    return finding.ok(STATUS, f"the WAL of slot {slot.name} is kept")


def _plugin(slot: Slot, wanted: Wanted) -> Finding:
    name = "slot.plugin"
    if slot.plugin == wanted.plugin:
        return finding.ok(name, f"slot {slot.name} decodes with {slot.plugin}")
    return finding.failure(
        name,
        f"slot {slot.name} decodes with {slot.plugin}, not {wanted.plugin}",
        f"CDC_SLOT__PLUGIN={slot.plugin}, or a slot of another name: CDC_SLOT__NAME",
    )


def _database(slot: Slot, server: Server) -> Finding:
    name = "slot.database"
    if slot.database == server.database:
        return finding.ok(name, f"slot {slot.name} belongs to {slot.database}")
    return finding.failure(
        name,
        f"slot {slot.name} belongs to database {slot.database}, the DSN names"
        f" {server.database}",
        f"name dbname={slot.database} in CDC_POSTGRES__DSN, or a slot of another"
        " name: CDC_SLOT__NAME",
    )


def _not_ours(slot: Slot) -> Finding:
    if slot.temporary:
        return finding.failure(
            "slot.persistent",
            f"slot {slot.name} is temporary, of pid {slot.active_pid}",
            "choose another name: CDC_SLOT__NAME",
        )
    return finding.failure(
        "slot.persistent",
        f"slot {slot.name} is copied here from the primary and cannot be read",
        "connect to the primary: add target_session_attrs=read-write to the DSN",
    )
