"""Whoever holds WAL on a real server is named, and the right alarm is up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slots import catalog
from slots.errors import SlotNotReady
from slots.state import Level
from slots.state.units import MB
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.slot_stage import Command, Stage

pytestmark = pytest.mark.postgres


async def test_a_consumer_that_confirms_nothing_is_named(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    await stage.consumer("orders")
    async with stage.watch(no_progress="1s:1h") as watched:
        assert await watched.up() == {}

        await stage.write(21)

        async def is_stuck() -> bool:
            return await watched.up() == {"no_progress": Level.WARNING}

        await eventually(is_stuck)

    cause = (await slots.why(stage.target, "orders"))["consumer"]
    assert cause["held_bytes"] >= 20 * MB
    assert "application sleepy" in cause["text"]
    assert "from 127.0.0.1" in cause["text"]
    assert "pid " in cause["text"]
    assert "look at the consumer" in cause["remedy"]


@pytest.mark.parametrize("database", ["postgres", "other"])
async def test_a_long_write_transaction_in_any_database_is_named(
    stage: Stage, slots: Command, database: str
) -> None:
    await stage.admin.execute("CREATE DATABASE other")
    await catalog.create_slot(stage.admin, "orders")
    session = await stage.begin_write(database)
    async with stage.watch(transaction_gap="5MB", transaction_age="1s") as watched:
        assert await watched.up() == {}
        await stage.write(9)
        await stage.confirm_all("orders")

        async def both() -> bool:
            expected = {
                "transaction_gap": Level.WARNING,
                "transaction_age": Level.WARNING,
            }
            return await watched.up() == expected

        await eventually(both)

    cause = (await slots.why(stage.target, "orders"))["transaction"]
    assert cause["held_bytes"] >= 8 * MB
    assert f"pid {session.info.backend_pid} " in cause["text"]
    assert f"database {database}" in cause["text"]
    assert "idle in transaction" in cause["text"]
    assert f"pg_terminate_backend({session.info.backend_pid})" in cause["remedy"]


async def test_a_prepared_transaction_is_named_with_its_statements(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    session = await stage.begin_write()
    await session.execute("PREPARE TRANSACTION 'left behind'")
    await stage.write(8)
    await stage.confirm_all("orders")

    async def named() -> bool:
        return "prepared_transaction" in await slots.why(stage.target, "orders")

    await eventually(named)
    cause = (await slots.why(stage.target, "orders"))["prepared_transaction"]
    assert "'left behind'" in cause["text"]
    assert "ROLLBACK PREPARED 'left behind' in database postgres" in cause["remedy"]


async def test_a_transaction_that_only_reads_holds_nothing(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    reader = await stage.session()
    await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await reader.execute("SELECT * FROM public.t")
    await stage.write(8)
    await stage.admin.execute("CHECKPOINT")
    await stage.confirm_all("orders")

    document = await slots.json(stage.target, "why", "orders")

    assert document["blockers"] == []
    assert document["slot"]["retained_bytes"] < 1 * MB
    assert document["slot"]["transaction_gap_bytes"] < 1 * MB


async def test_an_inactive_slot_is_named_with_since_when(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    await stage.write(9)
    async with stage.watch(inactive="1s:1h") as watched:

        async def is_inactive() -> bool:
            return await watched.up() == {"inactive": Level.WARNING}

        await eventually(is_inactive)

    cause = (await slots.why(stage.target, "orders"))["inactive"]
    assert cause["held_bytes"] >= 8 * MB
    knows = stage.server.version == "18"
    assert ("nobody streams from it since 2" in cause["text"]) is knows
    assert ("Postgres tells from 17 on" in cause["text"]) is not knows
    assert "slots drop orders" in cause["remedy"]


async def test_a_standby_that_is_not_there_is_named(
    stage_of: Callable[..., Awaitable[Stage]], slots: Command
) -> None:
    stage = await stage_of("18", synchronized_standby_slots="standby_1")
    await catalog.create_slot(stage.admin, "standby_1", plugin=None)
    await catalog.create_slot(stage.admin, "orders", failover=True)
    await stage.consumer("orders")
    async with stage.watch("orders", no_progress="1s:1h") as watched:
        await watched.up()
        await stage.write(21)

        async def is_stuck() -> bool:
            return await watched.up() == {"no_progress": Level.WARNING}

        await eventually(is_stuck)

    causes = await slots.why(stage.target, "orders")
    assert "consumer" not in causes
    assert "slot standby_1 is inactive since 2" in causes["standby"]["text"]
    assert "synchronized_standby_slots" in causes["standby"]["remedy"]


async def test_a_slot_that_is_still_being_made_names_who_it_waits_for(
    stage: Stage, slots: Command
) -> None:
    session = await stage.begin_write()
    maker = await stage.session()
    making = catalog.create_slot(maker, "orders", timeout_s=1)

    async def looks() -> None:
        async def is_there() -> bool:
            return await catalog.get_slot(stage.admin, "orders") is not None

        await eventually(is_there)
        causes = await slots.why(stage.target, "orders")
        assert "still being made" in causes["creation"]["text"]

    async with asyncio.TaskGroup() as group:
        group.create_task(looks())
        with pytest.raises(SlotNotReady, match="within 1 s"):
            await making
    assert await catalog.get_slot(stage.admin, "orders") is None
    assert not session.closed
