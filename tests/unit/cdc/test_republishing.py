"""Events of table rows to a sink: what is new, in order, in a window, all awaited."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import RecordRefused, SinkUncertain
from cdc.known_ids import KnownIds
from cdc.outbox import Event
from cdc.republishing import Progress, Republisher
from cdc.testing import FaultScript, MemorySink
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence

    from cdc.outbox import EventBatch
    from cdc.sinks import Delivery, Sink

ROW_BYTES = 100


def rows(*numbers: int, size_bytes: int = ROW_BYTES) -> list[Event]:
    return [
        Event(str(number), "t", None, None, [], 0, None, size_bytes)
        for number in numbers
    ]


def ids(events: Sequence[Event]) -> list[int]:
    return [int(event.event_id) for event in events]


class Pieces:
    """Pieces of rows, as a table gives them.

    Attributes:
        taken: how many were asked for.
        is_closed: whether nobody will ask for more.

    """

    def __init__(self, *pieces: list[Event]) -> None:
        self._pieces = pieces
        self.taken = 0
        self.is_closed = False

    async def read(self) -> AsyncGenerator[list[Event], None]:
        try:
            for piece in self._pieces:
                self.taken += 1
                yield piece
        finally:
            self.is_closed = True


def republisher(
    sink: Sink | None,
    known: KnownIds | None = None,
    *,
    window_bytes: int = 1000,
    told: Callable[[Progress], None] = lambda _progress: None,
) -> Republisher:
    nothing = KnownIds(None, since_ms=0)
    return Republisher(sink, known or nothing, window_bytes=window_bytes, told=told)


class LateSink(MemorySink):
    """A sink whose batches become durable only when somebody waits for them.

    Attributes:
        weights: of the batches in flight, each time that one has been accepted.
        awaited: the weight in flight, each time that a delivery was awaited.

    """

    def __init__(self) -> None:
        super().__init__()
        self.in_flight_bytes = 0
        self.weights: list[int] = []
        self.awaited: list[int] = []

    async def publish(self, batch: EventBatch) -> Delivery:
        assert batch.events
        assert batch.end_lsn is None
        self.in_flight_bytes += batch.size_bytes
        self.weights.append(self.in_flight_bytes)
        return LateDelivery(self, batch)

    async def settle(self, batch: EventBatch) -> None:
        self.awaited.append(self.in_flight_bytes)
        await asyncio.sleep(0)
        self.in_flight_bytes -= batch.size_bytes
        self.events += batch.events


class LateDelivery:
    """The delivery of a LateSink."""

    def __init__(self, sink: LateSink, batch: EventBatch) -> None:
        self._sink = sink
        self._batch = batch

    def __await__(self) -> Generator[None, None, None]:
        return self._sink.settle(self._batch).__await__()


SIZES = st.lists(st.lists(st.integers(1, 300), max_size=5), max_size=12)


@given(sizes=SIZES, window_bytes=st.integers(1, 1000), known=st.sets(st.integers(0, 9)))
def test_no_more_is_in_flight_than_the_window_and_one_piece(
    sizes: list[list[int]], window_bytes: int, known: set[int]
) -> None:
    """And the window is used: nothing is awaited while there is room."""
    numbers = iter(range(1000))
    pieces = [
        [one for size in piece for one in rows(next(numbers), size_bytes=size)]
        for piece in sizes
    ]
    holding, sink = MemorySink(), LateSink()
    holding.events = rows(*known)
    awaited_for_room = 0

    async def read() -> AsyncGenerator[list[Event], None]:
        nonlocal awaited_for_room
        for piece in pieces:
            yield piece
            awaited_for_room = len(sink.awaited)

    async def publish() -> Progress:
        with KnownIds(holding, since_ms=0) as known_ids:
            subject = republisher(sink, known_ids, window_bytes=window_bytes)
            return await subject.publish(read())

    progress = asyncio.run(publish())

    new = [
        [event for event in piece if int(event.event_id) not in known]
        for piece in pieces
    ]
    sent = [sum(event.size_bytes for event in piece) for piece in new if piece]
    assert sink.events == [event for piece in new for event in piece]
    assert sink.in_flight_bytes == 0
    for in_flight_bytes, size_bytes in zip(sink.weights, sent, strict=True):
        assert in_flight_bytes - size_bytes < window_bytes
    for in_flight_bytes in sink.awaited[:awaited_for_room]:
        assert in_flight_bytes >= window_bytes
    assert progress.published == len(sink.events)
    assert progress.size_bytes == sum(sent)
    assert progress.present == progress.rows - progress.published


async def test_only_what_the_sink_lacks_is_published() -> None:
    sink = MemorySink()
    sink.events = rows(1, 3, 4)
    figures: list[tuple[int, int, int, int]] = []

    def told(progress: Progress) -> None:
        figures.append(
            (progress.rows, progress.present, progress.published, progress.size_bytes)
        )

    with KnownIds(sink, since_ms=0) as known:
        subject = republisher(sink, known, window_bytes=1, told=told)
        pieces = Pieces(rows(1, 2), rows(3, 4), rows(5, 6))
        progress = await subject.publish(pieces.read())

    assert ids(sink.events[3:]) == [2, 5, 6]
    assert figures == [(2, 1, 0, 0), (4, 3, 0, 0), (6, 3, 1, 100), (6, 3, 3, 300)]
    assert progress == subject.progress


async def test_what_is_under_way_is_neither_there_nor_published() -> None:
    sink = MemorySink(FaultScript(hold={0}))
    pieces = Pieces(rows(1, 2), rows(3))
    subject = republisher(sink)

    publishing = asyncio.create_task(subject.publish(pieces.read()))
    await eventually(lambda: pieces.is_closed)

    progress = subject.progress
    assert (progress.rows, progress.present, progress.published) == (3, 0, 0)
    assert not publishing.done()
    sink.release()
    assert (await publishing).published == 3


async def test_a_full_window_holds_the_reading_until_there_is_room() -> None:
    sink = MemorySink(FaultScript(hold={0, 3}))
    pieces = Pieces(*(rows(number) for number in range(10)))
    subject = republisher(sink, window_bytes=3 * ROW_BYTES)

    async with asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(subject.publish(pieces.read()))
        await eventually(lambda: pieces.taken == 4)
        sink.release()
        await eventually(lambda: pieces.taken == 7)
        assert not publishing.done()
        sink.release()

    assert ids(sink.events) == list(range(10))


@pytest.mark.parametrize("window_bytes", [1, 1000])
async def test_a_delivery_that_fails_ends_it_and_is_not_counted(
    window_bytes: int,
) -> None:
    """At once where the window is full, else behind the last row."""
    sink = MemorySink(FaultScript(fail={1: SinkUncertain("gone")}))
    pieces = Pieces(rows(1, 2), rows(3), rows(4), rows(5))
    subject = republisher(sink, window_bytes=window_bytes)

    with pytest.raises(SinkUncertain, match="gone"):
        await subject.publish(pieces.read())

    assert subject.progress.published == 2
    assert pieces.is_closed
    assert pieces.taken == (3 if window_bytes == 1 else 4)


async def test_a_batch_that_is_refused_ends_it() -> None:
    sink = MemorySink(FaultScript(refuse={1: RecordRefused("too large")}))
    pieces = Pieces(rows(1), rows(2), rows(3))

    with pytest.raises(RecordRefused, match="too large"):
        await republisher(sink).publish(pieces.read())

    assert pieces.is_closed
    assert ids(sink.events) == [1]


async def test_it_can_be_cancelled_while_it_waits() -> None:
    sink = MemorySink(FaultScript(hold={0}))
    pieces = Pieces(rows(1), rows(2), rows(3))
    publishing = asyncio.create_task(
        republisher(sink, window_bytes=1).publish(pieces.read())
    )
    await eventually(lambda: pieces.taken == 2)

    publishing.cancel()
    await asyncio.wait({publishing})

    assert publishing.cancelled()
    assert pieces.is_closed


async def test_without_a_sink_it_only_counts() -> None:
    holding = MemorySink()
    holding.events = rows(2)
    with KnownIds(holding, since_ms=0) as known:
        subject = republisher(None, known, window_bytes=1)

        progress = await subject.publish(Pieces(rows(1, 2), rows(3, 4)).read())

    assert (progress.rows, progress.present, progress.published) == (4, 1, 3)
    assert progress.size_bytes == 3 * ROW_BYTES


async def test_no_rows_are_told_as_none() -> None:
    told: list[Progress] = []
    subject = republisher(MemorySink(), told=lambda one: told.append(replace(one)))

    progress = await subject.publish(Pieces().read())

    assert (progress.rows, progress.present, progress.published) == (0, 0, 0)
    assert len(told) == 1


def test_the_rate_is_of_the_rows_since_the_beginning() -> None:
    progress = Progress(rows=500, began_at=time.monotonic() - 100)

    assert 4 < progress.rate() < 5.01
    assert Progress(began_at=time.monotonic()).rate() == 0
