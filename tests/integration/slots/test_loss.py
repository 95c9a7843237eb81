"""C09, what is shown of it: on the way to loss, lost, dropped, made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slots import catalog
from slots.state import Level, WalStatus
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.slot_stage import Command, Stage

pytestmark = pytest.mark.postgres

SMALL = {"max_slot_wal_keep_size": "16MB", "max_wal_size": "6MB"}


@pytest.mark.parametrize("major", ["15", "18"])
async def test_c09_every_status_on_the_way_is_seen_and_told(
    stage_of: Callable[..., Awaitable[Stage]], slots: Command, major: str
) -> None:
    """Reserved, extended, unreserved: each is shown, and unreserved is critical."""
    stage = await stage_of(major, **SMALL, checkpoint_completion_target="1.0")
    await catalog.create_slot(stage.admin, "orders")
    seen: list[str] = []
    async with stage.watch(inactive="off") as watched:
        for _ in range(400):
            await stage.write(0.25)
            up = await watched.up()
            status = (await stage.slot("orders")).wal_status
            assert status is not None
            if status.value not in seen:
                seen.append(status.value)
            if "unreserved" in up:
                assert up["unreserved"] is Level.CRITICAL
            if status is WalStatus.LOST:
                break
        assert (await watched.up()) == {"lost": Level.CRITICAL}

    assert seen[:2] == ["reserved", "extended"]
    assert seen[-1] == "lost"
    causes = await slots.why(stage.target, "orders")
    assert "max_slot_wal_keep_size" in causes["lost"]["text"]
    assert "slots drop orders" in causes["lost"]["remedy"]


@pytest.mark.parametrize("major", ["15", "18"])
async def test_c09_an_unreserved_slot_is_critical_and_can_be_saved(
    stage_of: Callable[..., Awaitable[Stage]], major: str
) -> None:
    stage = await stage_of(major, max_slot_wal_keep_size="8MB")
    await catalog.create_slot(stage.admin, "orders")
    async with stage.watch(inactive="off") as watched:
        await stage.write(12)

        up = await watched.up()
        assert up["unreserved"] is Level.CRITICAL
        assert up["budget"] is Level.CRITICAL
        view = await watched.look()
        assert view.reading is not None
        safe = view.reading.slots[0].safe_wal_bytes
        assert safe is not None
        assert safe < 0

        await stage.let_go("orders")
        await stage.admin.execute("CHECKPOINT")

        assert await watched.up() == {}


@pytest.mark.parametrize("major", ["15", "18"])
async def test_c09_a_jump_to_lost_between_two_looks_is_told_at_once(
    stage_of: Callable[..., Awaitable[Stage]], slots: Command, major: str
) -> None:
    stage = await stage_of(major, max_slot_wal_keep_size="8MB")
    await catalog.create_slot(stage.admin, "orders")
    async with stage.watch(inactive="off") as watched:
        assert await watched.up() == {}

        await stage.write(20)
        await stage.admin.execute("CHECKPOINT")

        assert await watched.up() == {"lost": Level.CRITICAL}

    shown = (await slots.json(stage.target, "list"))["slots"][0]
    assert shown["wal_status"] == "lost"
    assert shown["verdict"] == "critical"
    assert shown["restart_lsn"] is None
    assert shown["confirmed_flush_lsn"] is not None
    assert shown["retained_bytes"] is None
    assert await slots(stage.target, "check", "orders") == 2
    assert shown["confirmed_flush_lsn"] in slots.out


async def test_c09_a_slot_lost_for_idleness_says_so(
    stage_of: Callable[..., Awaitable[Stage]], slots: Command
) -> None:
    stage = await stage_of("18", idle_replication_slot_timeout="1s")
    await catalog.create_slot(stage.admin, "orders")
    async with stage.watch(inactive="off") as watched:

        async def is_lost() -> bool:
            await stage.admin.execute("CHECKPOINT")
            return await watched.up() == {"lost": Level.CRITICAL}

        await eventually(is_lost, 20)

    causes = await slots.why(stage.target, "orders")
    assert "idle_timeout" in causes["lost"]["text"]
    assert "idle_replication_slot_timeout" in causes["lost"]["text"]
    document = await slots.json(stage.target, "show", "orders")
    assert document["invalidation_reason"] == "idle_timeout"
    assert document["retained_bytes"] is None


async def test_a_slot_dropped_and_made_again_under_the_watch_is_told(
    stage: Stage,
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    async with stage.watch(inactive="off") as watched:
        await watched.up()

        await catalog.drop_slot(stage.admin, "orders")
        assert await watched.up() == {"missing": Level.WARNING}

        await catalog.create_slot(stage.admin, "orders")
        assert await watched.up() == {"replaced": Level.WARNING}


async def test_a_slot_made_again_between_two_looks_is_told(stage: Stage) -> None:
    """Its decoding statistics have begun again."""
    await catalog.create_slot(stage.admin, "orders", plugin="test_decoding")
    await stage.admin.execute("INSERT INTO public.t VALUES (1)")
    await stage.admin.execute(
        "SELECT * FROM pg_catalog.pg_logical_slot_get_changes('orders', NULL, NULL)"
    )

    async def has_statistics() -> bool:
        return bool((await stage.slot("orders")).decoded_transactions)

    await eventually(has_statistics)
    async with stage.watch(inactive="off") as watched:
        assert await watched.up() == {}

        await catalog.drop_slot(stage.admin, "orders")
        await catalog.create_slot(stage.admin, "orders", plugin="test_decoding")

        assert await watched.up() == {"replaced": Level.WARNING}


async def test_a_named_slot_that_is_missing_is_critical(
    stage: Stage, slots: Command
) -> None:
    async with stage.watch("orders") as watched:
        assert await watched.up() == {"missing": Level.CRITICAL}

        await catalog.create_slot(stage.admin, "orders")

        assert await watched.up() == {}
    assert await slots(stage.target, "check", "nosuch") == 2
    assert "nosuch: does not exist" in slots.out
