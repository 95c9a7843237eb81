"""``slots check --failover``: what would go wrong at a switchover is found before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from slots import catalog
from slots.connect import Target, connect
from tests.slot_stage import SEGMENT_MB, SETTINGS, Command, Stage
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cdc.local import LocalPostgres

pytestmark = pytest.mark.postgres

SYNC = {"sync_replication_slots": "on", "hot_standby_feedback": "on"}


@pytest.fixture
async def primary(private_postgres: Callable[..., Any]) -> AsyncIterator[Stage]:
    server = private_postgres("18", settings=SETTINGS, wal_segment_mb=SEGMENT_MB)
    async with Stage(server) as stage:
        await catalog.create_slot(stage.admin, "standby_1", plugin=None)
        yield stage


@pytest.fixture
async def standby(primary: Stage) -> AsyncIterator[LocalPostgres]:
    copy = await asyncio.to_thread(
        lambda: primary.server.standby(primary_slot_name="standby_1", **SYNC)
    )
    try:
        await asyncio.to_thread(copy.start)
        yield copy
    finally:
        await asyncio.to_thread(copy.close)


async def check(slots: Command, primary: Stage, *arguments: str) -> int:
    return await slots(primary.target, "check", "--failover", *arguments)


async def test_a_failover_slot_that_is_ready_everywhere_is_ok(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    await catalog.create_slot(primary.admin, "orders", failover=True)
    primary.server.set(synchronized_standby_slots="standby_1")
    primary.server.reload()

    async def is_ready() -> bool:
        # The copy becomes persistent once the slot has passed the standby's position.
        await primary.write(0.25)
        await primary.let_go("orders")
        return await check(slots, primary, "--standby", standby.dsn()) == 0

    await eventually(is_ready, 60)
    assert slots.out.startswith("SLOTS OK - 1 failover slots are ready on 1 standbys")


async def test_a_switchover_that_would_lose_slots_is_critical(
    primary: Stage, slots: Command
) -> None:
    assert await check(slots, primary) == 2
    assert "no slot is a failover slot" in slots.out

    await catalog.create_slot(primary.admin, "plain")
    assert await check(slots, primary, "plain", "gone") == 2
    assert "plain: is no failover slot" in slots.out
    assert "ALTER_REPLICATION_SLOT plain (FAILOVER true)" in slots.out
    assert "gone: does not exist on the primary" in slots.out


async def test_what_is_not_set_or_not_looked_at_is_a_warning(
    primary: Stage, slots: Command
) -> None:
    await catalog.create_slot(primary.admin, "orders", failover=True)

    assert await check(slots, primary) == 1
    assert "synchronized_standby_slots is empty" in slots.out
    assert "name each with --standby" in slots.out


async def test_a_standby_that_holds_delivery_up_is_critical(
    primary: Stage, slots: Command
) -> None:
    await catalog.create_slot(primary.admin, "orders", failover=True)
    primary.server.set(synchronized_standby_slots="standby_1, nosuch")
    primary.server.reload()

    async def is_found() -> bool:
        return await check(slots, primary) == 2

    await eventually(is_found)
    assert "standby_1: is inactive, and failover slots wait for it" in slots.out
    assert "nosuch: does not exist, and failover slots wait for it" in slots.out


async def test_a_name_in_the_way_is_critical(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    target = Target(dsn=SecretStr(standby.dsn()))
    async with await connect(target) as connection:
        await catalog.create_slot(connection, "orders", plugin=None)
    await catalog.create_slot(primary.admin, "orders", failover=True)

    assert await check(slots, primary, "--standby", standby.dsn()) == 2
    assert "a slot of the standby's own is in the way" in slots.out
    async with await connect(target) as connection:
        await catalog.drop_slot(connection, "orders")


async def test_a_standby_that_does_not_sync_is_critical(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    standby.set(sync_replication_slots="off")
    standby.reload()
    await catalog.create_slot(primary.admin, "orders", failover=True)

    async def is_found() -> bool:
        code = await check(slots, primary, "--standby", standby.dsn())
        return code == 2 and "orders: has no copy" in slots.out

    await eventually(is_found)
    assert "sync_replication_slots = on" in slots.out


async def test_the_wrong_way_round_is_unknown(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    target = Target(dsn=SecretStr(standby.dsn()))

    assert await slots(target, "check", "--failover") == 3
    assert "is a standby; name the primary with --dsn" in slots.out
    await catalog.create_slot(primary.admin, "orders", failover=True)
    own = primary.target.dsn.get_secret_value()
    assert await check(slots, primary, "--standby", own) == 2
    assert "is no standby" in slots.out


async def test_a_standby_reads_its_own_slots(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    """Distances on a standby are from what it has replayed."""
    await primary.write(3)
    target = Target(dsn=SecretStr(standby.dsn()))

    document = await slots.json(target, "list")

    assert document["server"]["is_in_recovery"] is True
    assert document["server"]["wal_position"] is not None


async def test_a_promoted_standby_is_read_like_any_primary(
    primary: Stage, standby: LocalPostgres, slots: Command
) -> None:
    await catalog.create_slot(primary.admin, "orders", failover=True)
    target = Target(dsn=SecretStr(standby.dsn()))

    async def is_synced() -> bool:
        await primary.write(0.25)
        await primary.let_go("orders")
        document = await slots.json(target, "list")
        return any(one["synced"] and not one["temporary"] for one in document["slots"])

    await eventually(is_synced, 60)
    await asyncio.to_thread(standby.promote)

    (one,) = (await slots.json(target, "list"))["slots"]
    assert one["name"] == "orders"
    assert one["retained_bytes"] >= 0
    assert one["lag_bytes"] >= 0
    assert not any(found["alarm"] == "ahead" for found in one["findings"])
    assert (await slots.json(target, "why", "orders"))["causes"]
    assert await slots(target, "show", "orders", "--sample", "0") == 0
    assert "a copy from the primary" not in slots.out


async def test_failover_slots_are_of_17_and_later(
    private_postgres: Callable[..., Any], slots: Command
) -> None:
    server = private_postgres("15")
    target = Target(dsn=SecretStr(server.dsn()))

    assert await slots(target, "check", "--failover") == 3
    assert "Postgres 17 and later" in slots.out
