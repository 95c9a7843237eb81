"""A standby is promoted: the relay goes on by itself, or it says why it must not."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from slots.connect import Target
from tests.file_relay import accepted_gap
from tests.slot_stage import Command
from tests.standby_pair import STANDBY_SLOT, StandbyPair
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.postgres


@pytest.fixture
async def pair_of(
    private_postgres: Callable[..., Any], tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[StandbyPair]]]:
    """``await pair_of("18")``: a primary, its standby, and what ``cdc init`` makes."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(major: str = "18", plugin: str = "pgoutput") -> StandbyPair:
            server = private_postgres(major)
            pair = StandbyPair(server, tmp_path / "events", plugin)
            return await stack.enter_async_context(pair)

        yield make


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


async def test_a_standby_that_holds_delivery_up_is_named_in_the_status(
    pair_of: Callable[..., Awaitable[StandbyPair]],
) -> None:
    """The lag grows, the relay is well, and the server's own words say why."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        first = await pair.source.insert_event()
        await pair.stored(first)
        await asyncio.to_thread(pair.standby.stop)
        pair.primary.set(synchronized_standby_slots=STANDBY_SLOT)
        pair.primary.reload()
        await eventually(lambda: pair.is_set("synchronized_standby_slots"))
        held = await pair.source.insert_event()

        async def is_told() -> bool:
            notice = (await relay.status())["server_notice"]
            return STANDBY_SLOT in notice and "standby" in notice

        await eventually(is_told, 30.0, what="the notice is in /status")
        lag = await pair.lag_bytes()
        await pair.write_idle(50)
        assert await pair.lag_bytes() > lag
        assert held not in shop.ids()
        assert (await relay.get("/readyz"))[0] == 200
        assert [one for one in relay.log if one.get("event") == "retrying"] == []

        await asyncio.to_thread(pair.standby.start)
        await shop.has(held)
        assert await relay.stop() == 0
    assert shop.ids() == [first, held]


async def test_a_copy_on_a_standby_is_shown_as_one_and_not_read(
    pair_of: Callable[..., Awaitable[StandbyPair]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks the standby is sent to the primary."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        await pair.copy_slot()
        assert await relay.stop() == 0
    on_standby = {"CDC_POSTGRES__DSN": pair.dsn_of(pair.standby)}

    slots = Command(capsys)
    target = Target(dsn=SecretStr(pair.dsn_of(pair.standby)))
    assert await slots(target, "show", pair.source.slot) == 0
    assert "a copy from the primary" in slots.out
    code, out, err = await shop.cdc("check", **on_standby)
    assert code == 3, err
    assert "is copied here from the primary and cannot be read" in out
    assert "target_session_attrs=read-write" in out

    position = shop.position()
    async with shop.process(with_http=False, **on_standby) as relay:
        assert await relay.exited(30.0) == 3
    assert "cannot be read" in relay.stderr
    assert "target_session_attrs=read-write" in relay.stderr
    assert shop.position().end_lsn == position.end_lsn
