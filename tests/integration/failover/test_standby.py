"""What a standby does to a relay before it is promoted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from slots.connect import Target
from tests.slot_stage import Command
from tests.standby_pair import STANDBY_SLOT, StandbyPair
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.postgres


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
    on_standby["CDC_STARTUP_TIMEOUT_S"] = "2"
    async with shop.process(with_http=False, **on_standby) as relay:
        assert await relay.exited(30.0) == 3
    assert "the server is a standby: it has a copy of slot" in relay.stderr
    assert "target_session_attrs=read-write" in relay.stderr
    assert shop.position() == position


@pytest.mark.parametrize("has_copy", [True, False], ids=["copy", "no-copy"])
async def test_a_standby_that_is_about_to_be_promoted_is_waited_for(
    pair_of: Callable[..., Awaitable[StandbyPair]], *, has_copy: bool
) -> None:
    """An address may lead to it before the failover is over: nothing is lost yet."""
    pair = await pair_of()
    shop = pair.shop
    async with shop.process() as relay:
        await relay.streaming()
        before = [await pair.source.insert_event()]
        await pair.stored(before[-1])
        if has_copy:
            await pair.copy_slot()
        await pair.passed(await pair.lag())
        await pair.passed(await pair.write_idle(20))
        assert await relay.stop() == 0
    await pair.source.disconnect()
    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.standby.start)

    async with shop.process(CDC_POSTGRES__DSN=pair.dsn_of(pair.standby)) as relay:
        line = await relay.logged(event="retrying")
        assert "the server is a standby: it has WAL up to" in line["reason"]
        for command in (["adopt"], ["resnapshot", "--yes"]):
            code, _out, err = await shop.cdc(
                *command, CDC_POSTGRES__DSN=pair.dsn_of(pair.standby)
            )
            assert code != 0
            assert "the server is a standby" in err

        await asyncio.to_thread(pair.standby.promote)

        if has_copy:
            before.append(await pair.source.insert_event())
            await shop.has(*before)
            assert await relay.stop() == 0
        else:
            await relay.logged(event="giving_up", kind="slot_lost")
    assert shop.ids() == before
