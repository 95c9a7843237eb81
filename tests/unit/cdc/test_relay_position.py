"""The slot follows what is stored, and not before the history is known to be ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cdc.errors import SinkUncertain, StreamLost
from cdc.position import Anchor, Gate, Position, PositionMismatch, parse
from cdc.sinks import Kept, Pace
from cdc.testing import FaultScript, MemoryPositions, MemorySink, ScriptedStream
from slots.errors import ServerUnavailable
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import (
    COMMIT_SIZE,
    event,
    keepalive,
    relation,
    relay,
    stored_position,
    transaction,
)
from tests.unit.cdc.test_relay import running
from tests.waiting import eventually

if TYPE_CHECKING:
    from slots.errors import SlotError

LONG = Pace(events_s=3600.0, idle_s=3600.0, idle_bytes=0)
COMMITTED_AT_US = 946_684_800_000_000
"""pgoutput counts from 2000; the parts' transactions commit at its zero."""


def stored(store: MemoryPositions) -> list[Position]:
    return [parse(kept.document) for kept in store.written]


def gate(anchor: int, end_lsn: int, *, start: int, xid: int = 7) -> Gate:
    """Give the gate of a relay whose last event's transaction commits at ``anchor``."""
    known = Anchor(Lsn(anchor + COMMIT_SIZE), xid, COMMITTED_AT_US, "id-1")
    position = stored_position(end_lsn, anchor=known)
    return Gate(position, start=Lsn(start), end_lsn=Lsn(end_lsn))


async def others_run() -> None:
    """Let every task go on as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_slot_waits_for_the_store() -> None:
    stream, sink, store = ScriptedStream(Lsn(100)), MemorySink(), MemoryPositions(LONG)
    subject = relay(stream, sink, store=store)

    async with running(subject):
        stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
        await eventually(lambda: stream.confirmed == 1048)
        stream.play(*transaction(2000, event(2)), received=Lsn(2048))
        await sink.wait_for(2)
        await others_run()
        assert stream.confirmed == subject.confirmed == 1048

    # The end stores what is left, and the slot follows.
    assert [position.end_lsn for position in stored(store)] == [1048, 2048]
    assert stream.confirmations == [1048, 2048]


async def test_the_anchor_is_the_last_transaction_that_is_acknowledged() -> None:
    stream, store = ScriptedStream(Lsn(100)), MemoryPositions()
    sink = MemorySink(FaultScript(hold={1}))

    async with running(relay(stream, sink, store=store)):
        stream.play(*transaction(1000, relation(), event(1), xid=8), received=Lsn(1048))
        await eventually(lambda: stream.confirmed == 1048)
        stream.play(*transaction(2000, event(2), xid=9), received=Lsn(2048))
        stream.play(keepalive(3000), received=Lsn(3000))
        await eventually(lambda: len(sink._held) == 1)
        await others_run()
        first = Anchor(Lsn(1048), 8, COMMITTED_AT_US, "id-1")
        assert [position.anchor for position in stored(store)] == [first]

        sink.release()
        await eventually(lambda: stream.confirmed == 3000)

    second = Anchor(Lsn(2048), 9, COMMITTED_AT_US, "id-2")
    assert stored(store)[-1].anchor == second


@pytest.mark.parametrize(
    "failing", [SinkUncertain("no answer"), ServerUnavailable("away")]
)
async def test_a_store_that_fails_ends_the_run_and_the_slot_stays(
    failing: SinkUncertain | SlotError,
) -> None:
    """What is delivered is delivered again, with the same ids."""

    class Failing(MemoryPositions):
        async def write(self, kept: Kept) -> None:
            del kept
            raise failing

    stream, sink = ScriptedStream(Lsn(100)), MemorySink()
    run = asyncio.create_task(relay(stream, sink, store=Failing()).run(grace_s=5.0))

    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))

    with pytest.raises(type(failing)):
        await run
    assert stream.confirmations == []


async def test_a_store_that_fails_at_the_end_does_not_hide_what_ended_it() -> None:
    stream, sink, store = ScriptedStream(Lsn(100)), MemorySink(), MemoryPositions(LONG)
    run = asyncio.create_task(relay(stream, sink, store=store).run(grace_s=5.0))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
    await eventually(lambda: stream.confirmed == 1048)
    stream.play(*transaction(2000, event(2)), received=Lsn(2048))
    await sink.wait_for(2)
    store.failing = SinkUncertain("no answer")

    stream.break_off(StreamLost("gone"))

    with pytest.raises(StreamLost):
        await run
    assert stream.confirmed == 1048


async def test_a_stop_whose_last_position_is_not_stored_says_so() -> None:
    stream, sink, store = ScriptedStream(Lsn(100)), MemorySink(), MemoryPositions(LONG)
    subject = relay(stream, sink, store=store)
    run = asyncio.create_task(subject.run(grace_s=5.0))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
    await eventually(lambda: stream.confirmed == 1048)
    stream.play(*transaction(2000, event(2)), received=Lsn(2048))
    await sink.wait_for(2)
    store.failing = SinkUncertain("no answer")

    subject.stop(grace_s=5.0)

    with pytest.raises(SinkUncertain):
        await run
    assert stream.confirmed == 1048


async def test_a_store_that_is_silent_at_the_end_is_not_waited_for_for_ever() -> None:
    class Silent(MemoryPositions):
        async def write(self, kept: Kept) -> None:
            del kept
            await asyncio.Event().wait()

    stream, sink = ScriptedStream(Lsn(100)), MemorySink()
    subject = relay(stream, sink, store=Silent())
    run = asyncio.create_task(subject.run(grace_s=0.2))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
    await sink.wait_for(1)

    subject.stop(grace_s=0.2)

    with pytest.raises(SinkUncertain, match="not stored within"):
        await run
    assert stream.confirmations == []


async def test_a_slot_that_has_forgotten_publishes_what_is_new_and_nothing_again() -> (
    None
):
    stream, sink = ScriptedStream(Lsn(500)), MemorySink()
    subject = relay(stream, sink, gate=gate(2000, 2500, start=500))

    async with running(subject):
        stream.play(
            *transaction(1000, relation(), event(1)),
            *transaction(2000, event(2)),
            *transaction(3000, event(3)),
            received=Lsn(3048),
        )
        await sink.wait_for(1)
        await eventually(lambda: stream.confirmed == 3048)
        assert subject.is_on_our_history

    assert [event.event_id for event in sink.events] == ["id-3"]


async def test_nothing_is_let_go_of_before_the_history_is_known_to_be_ours() -> None:
    """What was dropped as a repeat may be something else."""
    stream, sink, store = ScriptedStream(Lsn(500)), MemorySink(), MemoryPositions()
    subject = relay(stream, sink, store=store, gate=gate(2000, 2500, start=500))

    async with running(subject):
        stream.play(
            *transaction(1000, relation(), event(1)),
            *transaction(1100, relation(99, "noise"), event(1, oid=99)),
            keepalive(1900),
            received=Lsn(1900),
        )
        await others_run()
        assert stream.confirmations == []
        assert not subject.is_on_our_history

        stream.play(*transaction(2000, event(2)), received=Lsn(2048))
        stream.play(keepalive(2600), received=Lsn(2600))
        await eventually(lambda: stream.confirmed == 2600)

    assert sink.events == []
    assert [position.end_lsn for position in stored(store)] == [2600]


async def test_on_another_history_nothing_is_published_stored_or_confirmed() -> None:
    stream, sink, store = ScriptedStream(Lsn(500)), MemorySink(), MemoryPositions()
    subject = relay(stream, sink, store=store, gate=gate(2000, 2500, start=500))
    run = asyncio.create_task(subject.run(grace_s=5.0))

    stream.play(
        *transaction(1000, relation(), event(1)),
        *transaction(2000, event(2), xid=8),
        *transaction(3000, event(3), xid=9),
        received=Lsn(3048),
    )

    with pytest.raises(PositionMismatch, match="does not end at 0/800"):
        await run
    assert sink.events == []
    assert store.written == []
    assert stream.confirmations == []


async def test_a_keepalive_beyond_an_anchor_that_has_not_come_ends_the_run() -> None:
    stream, sink, store = ScriptedStream(Lsn(500)), MemorySink(), MemoryPositions()
    subject = relay(stream, sink, store=store, gate=gate(2000, 2500, start=500))
    run = asyncio.create_task(subject.run(grace_s=5.0))

    stream.play(keepalive(9000), received=Lsn(9000))

    with pytest.raises(PositionMismatch):
        await run
    assert store.written == []
    assert stream.confirmations == []
