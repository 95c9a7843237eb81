"""Acknowledged, then stored, then confirmed; and not written more often than wanted."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from cdc.errors import SinkUncertain
from cdc.keeper import PositionKeeper
from cdc.position import Anchor, Position, Sample, parse
from cdc.sinks import Kept, Pace
from cdc.testing import MemoryPositions
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import stored_position
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONG_S = 3600.0
AT_ONCE = Pace(events_s=0.0, idle_s=0.0, idle_bytes=0)


class Held(MemoryPositions):
    """Keeps nothing before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.released = asyncio.Event()

    async def write(self, kept: Kept) -> None:
        self.begun += 1
        await self.released.wait()
        await super().write(kept)


class Watched:
    """A keeper at position 100, and what it confirms."""

    def __init__(self, store: MemoryPositions) -> None:
        self.store = store
        self.subject = PositionKeeper(store, stored_position(100))
        self.confirmed: list[Lsn] = []
        self.subject.confirm = self._confirm

    def _confirm(self, lsn: Lsn) -> None:
        assert lsn <= max([Lsn(100), *self.stored]), "confirmed before it was stored"
        self.confirmed.append(lsn)

    async def has_confirmed(self, lsn: int) -> None:
        await eventually(lambda: lsn in self.confirmed)

    @property
    def written(self) -> list[Position]:
        return [parse(kept.document) for kept in self.store.written]

    @property
    def stored(self) -> list[Lsn]:
        return [position.end_lsn for position in self.written]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.subject.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def watched(*, pace: Pace = AT_ONCE) -> Watched:
    return Watched(MemoryPositions(pace))


def anchor(end_lsn: int) -> Anchor:
    return Anchor(Lsn(end_lsn), end_lsn, end_lsn, f"id-{end_lsn}")


async def others_run() -> None:
    """Let every task go on as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_position_is_stored_before_it_is_confirmed() -> None:
    there = watched()

    async with there.running():
        for end_lsn in range(200, 1000, 50):
            there.subject.moved(Lsn(end_lsn), anchor(end_lsn))
            await there.has_confirmed(end_lsn)

    assert there.confirmed == there.stored == [Lsn(n) for n in range(200, 1000, 50)]


async def test_what_is_not_stored_yet_is_not_confirmed() -> None:
    store = Held()
    there = Watched(store)

    async with there.running():
        there.subject.moved(Lsn(200), anchor(200))
        await eventually(lambda: store.begun == 1)
        await others_run()
        assert there.confirmed == []
        assert there.subject.position.end_lsn == 100

        store.released.set()
        await eventually(lambda: there.confirmed == [200])

    assert there.subject.position == there.written[-1]


async def test_a_foreign_advance_is_stored_before_it_is_confirmed_too() -> None:
    there = watched()

    async with there.running():
        there.subject.moved(Lsn(200), None)
        await eventually(lambda: there.confirmed == [200])

    assert there.stored == [200]
    assert there.written[-1].anchor is None


async def test_what_is_written_has_all_that_the_next_start_needs() -> None:
    there = watched()
    sample = Sample(7, 9, Lsn(150), 1_700_000_000_000)
    there.subject.sampled(sample)
    before_ms = time.time_ns() // 1_000_000

    there.subject.moved(Lsn(200), anchor(200))
    await there.subject.finish()

    (kept,), (position,) = there.store.written, there.written
    assert (kept.name, kept.term) == ("db.walferry", 1)
    assert before_ms <= position.stored_at_ms <= time.time_ns() // 1_000_000
    assert position == stored_position(
        200,
        anchor=anchor(200),
        samples=(sample,),
        horizon=7,
        stored_at_ms=position.stored_at_ms,
    )


async def test_while_events_flow_writes_wait_for_the_pace_and_take_the_newest() -> None:
    there = watched(pace=Pace(events_s=LONG_S, idle_s=0.0, idle_bytes=0))

    async with there.running():
        there.subject.moved(Lsn(200), anchor(200))
        await eventually(lambda: there.stored == [200])
        for end_lsn in range(210, 300, 10):
            there.subject.moved(Lsn(end_lsn), anchor(end_lsn))
            await others_run()
        assert there.stored == [200]

    await there.subject.finish()
    assert there.stored == [200, 290]
    assert there.written[-1].anchor == anchor(290)


async def test_no_more_is_written_than_the_pace_allows() -> None:
    pace_s = 0.05
    there = watched(pace=Pace(events_s=pace_s, idle_s=LONG_S, idle_bytes=0))
    began_at = time.monotonic()

    async with there.running():
        moved = 200

        def flows() -> bool:
            nonlocal moved
            moved += 1
            there.subject.moved(Lsn(moved), anchor(moved))
            return len(there.stored) >= 4

        await eventually(flows)

    assert len(there.stored) <= 1 + (time.monotonic() - began_at) / pace_s


async def test_foreign_wal_is_no_reason_to_write_before_there_is_enough_of_it() -> None:
    there = watched(pace=Pace(events_s=0.0, idle_s=0.0, idle_bytes=1000))

    async with there.running():
        there.subject.moved(Lsn(1099), None)
        await others_run()
        assert there.stored == []
        assert there.confirmed == []

        there.subject.moved(Lsn(1100), None)
        await eventually(lambda: there.confirmed == [1100])


async def test_foreign_wal_waits_for_its_own_pace_and_an_event_does_not() -> None:
    there = watched(pace=Pace(events_s=0.0, idle_s=LONG_S, idle_bytes=10))

    async with there.running():
        there.subject.moved(Lsn(200), None)
        await eventually(lambda: there.stored == [200])
        there.subject.moved(Lsn(90_000), None)
        await others_run()
        assert there.stored == [200]

        there.subject.moved(Lsn(90_048), anchor(90_048))
        await eventually(lambda: there.stored == [200, 90_048])


async def test_the_end_stores_what_is_left_whatever_the_pace() -> None:
    there = watched(pace=Pace(events_s=LONG_S, idle_s=LONG_S, idle_bytes=1 << 30))

    there.subject.moved(Lsn(101), None)
    await there.subject.finish()
    await there.subject.finish()

    assert there.stored == there.confirmed == [101]


async def test_the_end_writes_nothing_when_all_is_stored() -> None:
    there = watched()

    there.subject.sampled(Sample(7, 9, Lsn(90), 1))
    there.subject.moved(Lsn(100), None)
    await there.subject.finish()

    assert there.stored == []


async def test_a_sample_is_no_reason_to_write() -> None:
    there = watched()

    async with there.running():
        there.subject.sampled(Sample(7, 9, Lsn(150), 1))
        await others_run()

    assert there.stored == []
    assert there.subject.position.samples == (Sample(7, 9, Lsn(150), 1),)


async def test_a_sample_that_comes_during_a_write_is_kept_for_the_next() -> None:
    store = Held()
    there = Watched(store)
    first, second = Sample(7, 9, Lsn(150), 1), Sample(8, 9, Lsn(250), 2)
    there.subject.sampled(first)

    async with there.running():
        there.subject.moved(Lsn(200), anchor(200))
        await eventually(lambda: store.begun == 1)
        there.subject.sampled(second)
        store.released.set()
        await eventually(lambda: there.stored == [200])
        there.subject.moved(Lsn(300), anchor(300))
        await eventually(lambda: there.stored == [200, 300])

    assert there.written[0].samples == (first,)
    assert there.written[0].horizon == 7
    assert there.written[1].samples == (first, second)
    assert there.written[1].horizon == 8


async def test_what_is_acknowledged_during_a_write_is_in_the_next_one() -> None:
    store = Held()
    there = Watched(store)

    async with there.running():
        there.subject.moved(Lsn(200), anchor(200))
        await eventually(lambda: store.begun == 1)
        there.subject.moved(Lsn(300), anchor(300))
        there.subject.moved(Lsn(400), anchor(400))
        store.released.set()
        await eventually(lambda: there.confirmed == [200, 400])

    assert [position.anchor for position in there.written] == [anchor(200), anchor(400)]


async def test_a_slot_that_has_forgotten_follows_without_a_write() -> None:
    there = watched()

    async with there.running():
        for end_lsn in (60, 80, 100):
            there.subject.moved(Lsn(end_lsn), None)
        await others_run()

    assert there.confirmed == [60, 80, 100]
    assert there.stored == []


async def test_a_store_that_fails_ends_it_and_nothing_is_confirmed() -> None:
    there = watched()
    there.store.failing = SinkUncertain("no answer")

    async with there.running() as task:
        there.subject.moved(Lsn(200), anchor(200))
        with pytest.raises(SinkUncertain, match="no answer"):
            await task
    with pytest.raises(SinkUncertain):
        await there.subject.finish()

    assert there.confirmed == []
    assert there.subject.position == stored_position(100)
    there.store.failing = None
    await there.subject.finish()
    assert there.confirmed == [200]


async def test_a_write_that_was_cut_off_is_made_again_at_the_end() -> None:
    """Whether it is stored is not known, so it is not confirmed."""
    store = Held()
    there = Watched(store)

    async with there.running():
        there.subject.moved(Lsn(200), anchor(200))
        await eventually(lambda: store.begun == 1)
    store.released.set()
    assert there.confirmed == []

    await there.subject.finish()

    assert there.stored == there.confirmed == [200]


async def test_a_keeper_that_nobody_listens_to_stores_all_the_same() -> None:
    store = MemoryPositions()
    subject = PositionKeeper(store, stored_position(100))

    subject.moved(Lsn(200), None)
    await subject.finish()

    assert subject.position.end_lsn == 200
