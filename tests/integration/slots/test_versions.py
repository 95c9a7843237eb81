"""Every server version gives the same keys, in one round trip, for little."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING

import pytest

from slots import catalog
from slots.lsn import Lsn
from tests.integration.slots.conftest import MAJORS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.slot_stage import Command, Stage

    StageOf = Callable[..., Awaitable[Stage]]

pytestmark = pytest.mark.postgres

KEYS = {
    "name", "slot_type", "plugin", "database", "temporary", "active", "active_pid",
    "active_user", "active_application", "active_address", "active_state",
    "active_reply_at", "wal_status", "restart_lsn", "confirmed_flush_lsn",
    "retained_bytes", "lag_bytes", "transaction_gap_bytes", "safe_bytes",
    "budget_used", "growth_bytes_s", "time_to_loss_s", "xmin_age", "catalog_xmin_age",
    "inactive_since", "inactive_s", "stuck_s", "two_phase", "two_phase_at", "failover",
    "synced", "conflicting", "invalidation_reason", "decoded_transactions", "verdict",
    "findings",
}  # fmt: skip
SINCE = {"conflicting": 16, "inactive_since": 17, "failover": 17, "synced": 17}


@pytest.mark.parametrize("major", MAJORS)
async def test_the_listing_has_the_same_keys_from_every_version(
    stage_of: StageOf, slots: Command, major: str
) -> None:
    stage = await stage_of(major)
    await catalog.create_slot(stage.admin, "orders")
    await catalog.create_slot(stage.admin, "standby", plugin=None)

    document = await slots.json(stage.target, "list")

    assert set(document) == {"schema_version", "server", "findings", "slots"}
    logical, physical = document["slots"]
    assert set(logical) == set(physical) == KEYS
    assert logical["name"] == "orders"
    for key, since in SINCE.items():
        assert (logical[key] is not None) is (int(major) >= since), key
    assert physical["database"] is None
    assert physical["transaction_gap_bytes"] is None
    assert logical["two_phase"] is False


@pytest.mark.parametrize("major", MAJORS)
async def test_slots_are_made_moved_copied_and_dropped(
    stage_of: StageOf, major: str
) -> None:
    stage = await stage_of(major)
    begin = await catalog.create_slot(stage.admin, "a", two_phase=True)
    assert (await stage.slot("a")).two_phase is True
    await stage.write(1)
    end = await catalog.wal_position(stage.admin)

    assert (
        await catalog.copy_slot(stage.admin, "a", "b", plugin="test_decoding") == begin
    )
    assert (await stage.slot("b")).plugin == "test_decoding"
    assert await catalog.advance_slot(stage.admin, "a", end) == end
    assert await catalog.advance_slot(stage.admin, "a", begin) == end
    beyond = await catalog.advance_slot(stage.admin, "a", Lsn(end + 2**40))
    assert end <= beyond < end + 2**20
    await catalog.create_slot(stage.admin, "p", plugin=None)
    position = await catalog.copy_slot(stage.admin, "p", "q")
    assert position == (await stage.slot("p")).restart_lsn
    for name in "abpq":
        await catalog.drop_slot(stage.admin, name)
    assert await catalog.list_slots(stage.admin) == ()
    assert await catalog.get_slot(stage.admin, "a") is None


@pytest.mark.parametrize("major", ["15", "18"])
async def test_one_look_is_one_round_trip_and_costs_the_server_under_5_ms(
    stage_of: StageOf, major: str
) -> None:
    stage = await stage_of(
        major, max_replication_slots="60", log_min_duration_statement="0"
    )
    for number in range(50):
        await catalog.create_slot(stage.admin, f"s{number}")
    await stage.admin.execute("SELECT 'looking'")

    with tempfile.TemporaryFile() as trace:
        stage.admin.pgconn.trace(trace.fileno())
        reading = await catalog.read(stage.admin)
        stage.admin.pgconn.untrace()
        trace.seek(0)
        sent = re.findall(rb"^.*\tF\t\d+\t(\w+)", trace.read(), re.MULTILINE)
    assert len(reading.slots) == 50
    assert sent.count(b"Query") + sent.count(b"Sync") == 1

    for _ in range(100):
        await catalog.read(stage.admin)
    await stage.admin.execute("SELECT 'looked'")

    def durations() -> list[float]:
        text = stage.server.log.read_text("utf-8")
        between = text.partition("'looking'")[2].partition("'looked'")[0]
        return [float(one) for one in re.findall(r"duration: ([\d.]+) ms", between)]

    taken = await eventually(lambda: durations()[1:] if len(durations()) > 100 else [])
    # A prepared statement is logged twice a look: binding it, and executing it.
    assert sum(taken) / 100 < 5.0


@pytest.mark.slow
async def test_3600_looks_at_50_slots_keep_memory_flat(stage_of: StageOf) -> None:
    stage = await stage_of("18", max_replication_slots="60")
    for number in range(50):
        await catalog.create_slot(stage.admin, f"s{number}")
    async with stage.watch(slot_count="off", inactive="off") as watched:
        for _ in range(600):
            await watched.look()
        before = _resident_bytes()

        for _ in range(3000):
            await watched.look()

        assert _resident_bytes() - before < 4 << 20


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
