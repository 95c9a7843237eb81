"""A standby is promoted, and the relay goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.standby_pair import StandbyPair

pytestmark = pytest.mark.postgres


async def test_a_relay_goes_on_by_itself_on_the_promoted_standby(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """Nothing that was stored is repeated, and the next start finds nothing amiss."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(before[-1])
        await pair.follow()
        await pair.caught_up()
        started = shop.position()

        await pair.fail_over()

        after = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(after[-1])
        assert shop.ids() == before + after
        assert await relay.stop() == 0
    position = shop.position()
    assert (started.timeline, position.timeline) == (1, 2)
    assert position.epoch == started.epoch
    assert position.term > started.term

    more = await shop.run_once()
    assert shop.ids() == before + after + more


async def test_what_a_lagging_copy_of_the_slot_sends_again_is_dropped(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """What is published again is what had not been acknowledged, and nothing else."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(before[-1])
        await pair.copy_slot()
        before += [await pair.source.insert_event() for _ in range(3)]
        await shop.has(*before)
        assert await relay.stop() == 0
    anchor = shop.position().anchor
    assert anchor is not None
    assert await pair.copied_at() < anchor.end_lsn
    waiting = [await pair.source.insert_event() for _ in range(2)]
    await pair.caught_up()

    await pair.fail_over()

    more = await shop.run_once()
    assert shop.ids() == before + waiting + more
    assert shop.position().timeline == 2


@pytest.mark.parametrize("plugin", ["pgoutput", "wal2json"])
async def test_a_slot_that_a_tool_carried_over_by_hand_is_gone_on_with(
    pair_of: Callable[..., Awaitable[StandbyPair]], plugin: str
) -> None:
    """Before 17 tools copy the slot's file to the standby; it may be an old one."""
    pair = await pair_of("15", plugin)
    shop = pair.shop
    await pair.carry_slot()
    before = await shop.run_once()
    anchor = shop.position().anchor
    assert anchor is not None
    assert await pair.copied_at() < anchor.end_lsn
    waiting = [await pair.source.insert_event() for _ in range(2)]
    await pair.caught_up()

    await pair.fail_over()

    more = await shop.run_once()
    assert shop.ids() == before + waiting + more
    position = shop.position()
    assert (position.timeline, position.epoch) == (2, 0)


async def test_lost_wal_without_events_concerns_nobody(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """What commits after the promotion arrives, below the old position too."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(before[-1])
        await pair.copy_slot()
        received = await pair.lag()
        await pair.passed(await pair.write_idle(200))
        await pair.sampled_at(received)
        assert await relay.stop() == 0
    left = shop.position()
    assert left.anchor is not None
    assert left.anchor.end_lsn <= received < left.end_lsn

    await pair.fail_over()
    after = [await pair.source.insert_event() for _ in range(3)]
    assert await pair.written() < left.end_lsn

    async with shop.process() as relay:
        await relay.streaming()
        await shop.has(*after)
        await pair.stored(after[-1])
        assert await relay.stop() == 0
    assert shop.ids() == before + after
    position = shop.position()
    assert position.timeline == 2
    assert position.end_lsn < left.end_lsn
    lost = {one for one in left.samples if one.lsn > received}
    assert lost
    assert lost.isdisjoint(position.samples)
    assert left.horizon is not None
    assert position.horizon is None or position.horizon < left.horizon
