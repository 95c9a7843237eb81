"""What happens to a frame, and what is confirmed when."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from cdc.errors import (
    DecodingFailed,
    MappingError,
    SinkUncertain,
    StreamLost,
    Undelivered,
)
from cdc.metrics import RelayMetrics
from cdc.testing import FaultScript, MemorySink, ScriptedStream
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import (
    COMMIT_SIZE,
    event,
    insert,
    keepalive,
    relation,
    relay,
    transaction,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cdc.relay import Relay


@asynccontextmanager
async def running(subject: Relay, grace_s: float = 5.0) -> AsyncIterator[None]:
    """Run a relay while the block runs, then stop it in order."""
    task = asyncio.create_task(subject.run(grace_s=grace_s))
    try:
        yield
        subject.stop(grace_s=grace_s)
        async with asyncio.timeout(grace_s + 5):
            await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_transaction_is_confirmed_at_its_end_and_not_at_its_commit() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink()

    async with running(relay(stream, sink)):
        stream.play(
            *transaction(1000, relation(), event(1), event(2)),
            received=Lsn(1000 + COMMIT_SIZE),
        )
        await sink.wait_for(2)
        await eventually(lambda: stream.confirmed == 1000 + COMMIT_SIZE)

    assert stream.confirmations == [1000 + COMMIT_SIZE]
    assert stream.is_finished


async def test_only_the_last_event_of_a_transaction_says_so() -> None:
    stream, sink = ScriptedStream(), MemorySink()

    async with running(relay(stream, sink)):
        stream.play(
            *transaction(1000, relation(), *(event(n) for n in range(4))),
            *transaction(2000, event(4)),
            received=Lsn(3000),
        )
        events = await sink.wait_for(5)

    last = ["cdc.last" in dict(event.headers) for event in events]
    assert last == [False, False, False, True, True]


async def test_nothing_is_confirmed_past_a_batch_that_is_not_acknowledged() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink(FaultScript(hold={0}))

    async with running(relay(stream, sink)):
        stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
        stream.play(*transaction(2000, event(2)), keepalive(9000), received=Lsn(9000))
        stream.play(keepalive(9500, reply=True), received=Lsn(9500))
        await eventually(lambda: len(sink._held) >= 1)
        assert stream.confirmed == 100

        sink.release()
        await eventually(lambda: stream.confirmed == 9500)


async def test_a_keepalive_moves_the_position_only_outside_of_transactions() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink()
    begin, *rest = transaction(1000, relation(), event(1))

    async with running(relay(stream, sink)):
        stream.play(keepalive(500), received=Lsn(500))
        await eventually(lambda: stream.confirmed == 500)
        stream.play(begin, *rest[:-1], keepalive(900), received=Lsn(900))
        stream.play(rest[-1], received=Lsn(1048))
        await eventually(lambda: stream.confirmed == 1048)

    assert stream.confirmations == [500, 1048]


async def test_a_transaction_without_events_moves_the_position() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink()

    async with running(relay(stream, sink)):
        stream.play(
            *transaction(1000, relation(99, "noise"), event(1, oid=99)),
            received=Lsn(1048),
        )
        await eventually(lambda: stream.confirmed == 1048)

    assert sink.events == []


async def test_reading_pauses_while_the_window_is_full() -> None:
    stream, metrics = ScriptedStream(), RelayMetrics()
    sink = MemorySink(FaultScript(hold={0}))
    subject = relay(stream, sink, metrics, window_bytes=1)

    async with running(subject):
        stream.play(
            *transaction(1000, relation(), event(1)),
            keepalive(1100),
            received=Lsn(1100),
        )
        await eventually(lambda: subject.unacknowledged == 1)
        stream.play(*transaction(2000, event(2)), received=Lsn(2048))
        stream.play(*transaction(3000, event(3)), received=Lsn(3048))
        for _ in range(50):
            await asyncio.sleep(0)
        assert subject.unacknowledged == 1

        sink.release()
        await sink.wait_for(3)


async def test_a_failed_delivery_ends_the_run_and_confirms_nothing_of_it() -> None:
    stream = ScriptedStream(Lsn(100))
    sink = MemorySink(FaultScript(fail={0: SinkUncertain("no answer")}))

    run = asyncio.create_task(relay(stream, sink).run(grace_s=5.0))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))

    with pytest.raises(SinkUncertain, match="no answer"):
        await run

    assert stream.confirmed == 100


async def test_what_came_before_a_row_that_cannot_be_mapped_is_delivered() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink()
    no_topic = insert("id-2", None, "k", "Placed", "{}")

    run = asyncio.create_task(relay(stream, sink).run(grace_s=5.0))
    stream.play(
        *transaction(1000, relation(), event(1)),
        *transaction(2000, event(20), no_topic),
        *transaction(3000, event(3)),
        received=Lsn(4000),
    )

    with pytest.raises(MappingError, match="event id-2"):
        await run

    assert [event.event_id for event in sink.events] == ["id-1"]
    assert stream.confirmed == 1000 + COMMIT_SIZE


async def test_stopping_waits_for_what_is_in_flight() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink(FaultScript(hold={0}))
    subject = relay(stream, sink)
    task = asyncio.create_task(subject.run(grace_s=5.0))
    stream.play(
        *transaction(1000, relation(), event(1)), keepalive(1048), received=Lsn(1048)
    )
    await eventually(lambda: subject.unacknowledged == 1)

    subject.stop(grace_s=5.0)
    sink.release()
    await task

    assert stream.confirmed == 1048


async def test_a_stop_that_is_not_acknowledged_in_time_says_how_much_is_open() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink(FaultScript(hold={0}))
    subject = relay(stream, sink)
    task = asyncio.create_task(subject.run(grace_s=0.05))
    stream.play(
        *transaction(1000, relation(), event(1)), keepalive(1048), received=Lsn(1048)
    )
    await eventually(lambda: subject.unacknowledged == 1)

    subject.stop(grace_s=0.05)

    with pytest.raises(Undelivered, match="1 events unacknowledged"):
        await task
    assert stream.confirmed == 100


async def test_a_lost_stream_ends_the_run_even_while_the_window_is_full() -> None:
    stream, sink = ScriptedStream(), MemorySink(FaultScript(hold={0}))
    subject = relay(stream, sink, window_bytes=1)

    run = asyncio.create_task(subject.run(grace_s=5.0))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
    await eventually(lambda: subject.unacknowledged == 1)
    stream.play(*transaction(2000, event(2)), received=Lsn(2048))
    stream.break_off(StreamLost("gone"))

    with pytest.raises(StreamLost):
        await run


async def test_what_is_acknowledged_before_a_decoding_failure_is_known() -> None:
    stream, sink = ScriptedStream(Lsn(100)), MemorySink()
    subject = relay(stream, sink)

    run = asyncio.create_task(subject.run(grace_s=5.0))
    stream.play(*transaction(1000, relation(), event(1)), received=Lsn(1048))
    stream.break_off(DecodingFailed("cannot"))

    with pytest.raises(DecodingFailed):
        await run

    assert subject.confirmed == 1048


async def test_a_busy_sink_is_given_fewer_and_larger_batches() -> None:
    """What comes while batches are in flight is gathered, and no keepalive cuts it."""
    stream, sink = ScriptedStream(), MemorySink(FaultScript(hold={0}))
    async with running(relay(stream, sink)):
        stream.play(*transaction(1000, relation(), event(0)), received=Lsn(1048))
        await eventually(lambda: len(sink._held) == 1)
        for number in range(1, 200):
            at = 1000 + 100 * number
            stream.play(
                *transaction(at, event(number)),
                keepalive(at + 50),
                received=Lsn(at + 50),
            )
            await asyncio.sleep(0)
        await eventually(lambda: sum(len(held[1]) for held in sink._held) == 200)
        assert len(sink._held) <= 20

        sink.release()
        await eventually(lambda: stream.confirmed == 1000 + 100 * 199 + 50)
