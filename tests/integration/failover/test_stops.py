"""A standby is promoted, and the relay says why it must not go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.file_relay import accepted_gap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.standby_pair import StandbyPair

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("major", ["15", "18"])
async def test_a_promoted_standby_without_the_slot_stops_the_relay(
    pair_of: Callable[..., Awaitable[StandbyPair]], major: str
) -> None:
    """The rows since then are in no stream: which of two ways to go is asked for."""
    pair = await pair_of(major)
    shop = pair.shop
    before = await shop.run_once()
    missed = await pair.source.insert_event()
    await pair.caught_up()
    left_at = shop.position().end_lsn
    await pair.fail_over()
    unseen = await pair.source.insert_event()

    stderr = await shop.refuses("slot_lost")

    assert f"slot {pair.source.slot} does not exist any more" in stderr
    assert "(a standby without it was promoted, to timeline 2)" in stderr
    assert accepted_gap(stderr) == str(left_at)
    assert "cdc resnapshot" in stderr
    code, _out, err = await shop.cdc("adopt", "--accept-gap", str(left_at))
    assert code == 0, err
    after = await shop.run_once()
    assert shop.ids() == before + after
    assert {missed, unseen}.isdisjoint(shop.ids())
    position = shop.position()
    assert (position.timeline, position.epoch) == (2, 0)


@pytest.mark.parametrize("major", ["15", "18"])
async def test_a_resnapshot_brings_what_a_promotion_without_the_slot_left_out(
    pair_of: Callable[..., Awaitable[StandbyPair]], major: str
) -> None:
    pair = await pair_of(major)
    shop = pair.shop
    before = await shop.run_once()
    missed = [await pair.source.insert_event() for _ in range(3)]
    await pair.caught_up()
    await pair.fail_over()
    missed.append(await pair.source.insert_event())

    code, _out, err = await shop.cdc("resnapshot", "--yes")

    assert code == 0, err
    after = await shop.run_once()
    assert shop.ids() == before + missed + after


async def test_a_resnapshot_goes_by_what_both_histories_have_in_common(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """Transaction ids that were lost with the old primary are given out again.

    The horizon that the lost WAL led to would leave out the rows that have them now.
    """
    pair = await pair_of("15")
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(before[-1])
        received = await pair.lag()
        await pair.passed(await pair.write_idle(50))
        await pair.sampled_at(received)
        await pair.passed(await pair.write_idle(1))
        assert await relay.stop() == 0
    lost_horizon = shop.position().horizon
    assert lost_horizon is not None
    await pair.fail_over()
    missed = [await pair.source.insert_event() for _ in range(3)]
    newest = int(await pair.source.value("SELECT max(xmin::text::int8) FROM outbox"))
    assert newest < lost_horizon
    await pair.write_idle(100)
    assert newest + 100 > lost_horizon
    await shop.refuses("slot_lost")

    code, _out, err = await shop.cdc("resnapshot", "--yes")

    assert code == 0, err
    after = await shop.run_once()
    assert shop.ids() == before + missed + after


async def test_events_that_the_promoted_standby_never_had_stop_the_relay(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """Consumers have seen what does not exist any more: a new epoch is asked for."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event() for _ in range(3)]
        await pair.stored(before[-1])
        await pair.copy_slot()
        await pair.lag()
        ghost = await pair.source.insert_event(key="ghost")
        await pair.stored(ghost)
        assert await relay.stop() == 0
    anchor = shop.position().anchor
    assert anchor is not None
    await pair.fail_over()
    after = [await pair.source.insert_event()]

    stderr = await shop.refuses()

    assert f"timeline 1 was left at {await pair.switch()}, before" in stderr
    assert f"ends at {anchor.end_lsn}" in stderr
    assert "cdc adopt" in stderr
    code, out, err = await shop.cdc("adopt")
    assert code == 0, err
    assert "epoch 1 begins" in out
    after += await shop.run_once()
    assert shop.ids()[: len(before) + 1] == [*before, ghost]
    assert shop.ids()[-len(after) :] == after
    newest = dict(shop.events()[-1]["headers"])
    assert newest["cdc.position"].startswith("0001-")
    assert shop.position().timeline == 2


async def test_the_old_primary_that_comes_back_is_refused(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """It takes writes, and what it has of the slot looks whole."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event()]
        await pair.stored(before[-1])
        await pair.copy_slot()
        await pair.caught_up()
        await pair.fail_over()
        before.append(await pair.source.insert_event())
        await pair.stored(before[-1])
        assert await relay.stop() == 0
    assert shop.position().timeline == 2

    await asyncio.to_thread(pair.primary.start)
    await pair.source.disconnect()
    await pair.source.insert_event(key="split brain")

    stderr = await shop.refuses()
    assert "on timeline 1, which does not come from timeline 2" in stderr
    assert "the old primary" in stderr

    async with shop.process() as relay:
        await relay.logged(event="giving_up", kind="position_mismatch")
        assert (await relay.get("/readyz"))[0] == 503
        await asyncio.to_thread(pair.primary.kill)
        await pair.source.disconnect()
        before.append(await pair.source.insert_event())
        await relay.streaming()
        await shop.has(*before)
        assert await relay.stop() == 0
    assert shop.ids() == before
