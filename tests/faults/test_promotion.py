"""A standby is promoted under load, and consumers and the new primary agree."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.load import Load
from tests.standby_pair import STANDBY_SLOT, StandbyPair
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.postgres, pytest.mark.faults]

EVENTS = 1000


async def test_a_promotion_under_load_loses_nothing_and_leaves_no_ghosts(
    private_postgres: Callable[..., Any], tmp_path: Path
) -> None:
    """With synchronized_standby_slots consumers see what the standby has, no more.

    The standby is a few hundred commits behind when it is promoted. Everything that it
    has arrives, in order, and nothing that it lacks; nobody has to decide anything.
    """
    server = private_postgres("18")
    async with StandbyPair(server, tmp_path / "events", "pgoutput") as pair:
        shop = pair.shop
        server.set(synchronized_standby_slots=STANDBY_SLOT)
        server.reload()
        load = Load(pair.source.dsn)
        async with shop.process() as relay:
            await relay.streaming()
            async with load.running():
                await pair.follow()
                await eventually(lambda: len(shop.ids()) > EVENTS, 30.0)
                # Commits from now on are lost with the primary: nobody may see them.
                await asyncio.to_thread(pair.standby.stop)
                await load.grown_by(EVENTS // 2)
                await pair.fail_over()
                seen = len(shop.ids())
                await eventually(lambda: len(shop.ids()) > seen + EVENTS, 30.0)
            rows = await pair.source.fetch("SELECT id::text FROM outbox")
            there = {row["id"] for row in rows}
            await shop.has(*there)
            assert await relay.stop() == 0
        delivered = shop.ids()

    assert load.committed.keys() - there, "nothing was lost with the old primary"
    assert set(delivered) == there
    assert not [one for one in relay.log if one.get("event") == "giving_up"]
    assert shop.position().timeline == 2
    numbers = defaultdict(list)
    for one in dict.fromkeys(delivered):
        if one in load.committed:
            key, number = load.committed[one]
            numbers[key].append(number)
    assert all(found == sorted(found) for found in numbers.values())
    # What was in flight when the primary died, and no others.
    repeats = len(delivered) - len(there)
    assert repeats <= EVENTS // 10, f"{repeats} of {len(there)} repeated"
