"""Events become record batches; the outcomes of batches become one delivery."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from cdc.sinks.kafka_outcomes import too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from cdc.errors import CdcError
    from cdc.outbox import Event
    from cdc.sinks.kafka_partition import KeyHashes
    from cdc.sinks.kafka_record_batch import RecordBatch
    from cdc.sinks.kafka_topics import Topic

_ALWAYS: Final = 1 << 62


@dataclass(slots=True, kw_only=True)
class Shipment:
    """A record batch on its way.

    Attributes:
        first_id: id of its first event, for messages.
        count: how many events it holds.
        size_bytes: of the batch before compression.
        limit_bytes: what the topic takes at most, 0 when nobody knows.
        times_ms: timestamps of its first and of its last event.
        outcome: ours, not the client library's: it resolves when the broker has
            answered, and fails as soon as the sink breaks.
        deadline: of the loop's clock; after it the outcome counts as unknown.

    """

    topic: str
    partition: int
    first_id: str
    count: int
    size_bytes: int
    limit_bytes: int
    times_ms: tuple[int, int]
    outcome: asyncio.Future[None]
    deadline: float

    @property
    def where(self) -> str:
        """Name the partition, for messages."""
        return f"topic {self.topic}, partition {self.partition}"


class Overseer(Protocol):
    """Whoever decides what a silent broker means."""

    def give_up(self, shipment: Shipment) -> CdcError:
        """Break, because a shipment has had no answer in time; return the error."""
        ...


class KafkaDelivery:
    """Resolves when every shipment it consists of is acknowledged.

    Args:
        overseer: told when there is no answer in time.

    Attributes:
        held: events whose topic does not exist; resolved when they become shipments.
        sent: shipments; held events join them.

    """

    def __init__(self, overseer: Overseer) -> None:
        self._overseer = overseer
        self.held: list[asyncio.Future[None]] = []
        self.sent: list[Shipment] = []

    def __await__(self) -> Generator[Any, None, None]:
        return self._settled().__await__()

    async def answers(self, limit_s: float) -> None:
        """Wait for the outcomes of shipments, whatever they are, up to a limit."""
        outcomes = [shipment.outcome for shipment in self.sent]
        if outcomes:
            await asyncio.wait(outcomes, timeout=limit_s)

    async def _settled(self) -> None:
        # No limit here: waiting for a topic is a trouble that is shown, not a failure.
        for released in self.held:
            await asyncio.wait([released])
            released.result()
        loop = asyncio.get_running_loop()
        for shipment in self.sent:
            outcome = shipment.outcome
            if not outcome.done():
                left_s = max(0.0, shipment.deadline - loop.time())
                await asyncio.wait([outcome], timeout=left_s)
                if not outcome.done():
                    raise self._overseer.give_up(shipment)
            outcome.result()


@dataclass(slots=True)
class Filling:
    """A record batch that is being filled: its first record is in."""

    partition: int
    builder: RecordBatch
    encode: Callable[..., Any]
    first_id: str
    first_ms: int
    last_ms: int
    count: int = 1

    def shipment(self, topic: Topic, limit_s: float) -> Shipment:
        """Describe what is about to be sent; its time runs from now on."""
        loop = asyncio.get_running_loop()
        return Shipment(
            topic=topic.name,
            partition=self.partition,
            first_id=self.first_id,
            count=self.count,
            size_bytes=self.builder.size(),
            limit_bytes=topic.limit_bytes,
            times_ms=(self.first_ms, self.last_ms),
            outcome=loop.create_future(),
            deadline=loop.time() + limit_s,
        )


@dataclass(slots=True, kw_only=True)
class Packer:
    """Fills record batches for one topic, each partition's in order.

    Attributes:
        new_builder: makes an empty record batch; it takes any first record.
        hashes: where keys go.
        partitions: of the topic.
        unkeyed: partitions for events without a key, which are sent there in turn, a
            batch at a time.
        max_record_bytes: a record that alone makes a larger batch is refused.
        clock_limit_ms: a timestamp further from now is replaced.
        now_ms: what it is replaced by.
        timestamps_replaced: how many were.

    """

    topic: str
    new_builder: Callable[[], RecordBatch]
    hashes: KeyHashes
    partitions: int
    unkeyed: Iterator[int]
    max_record_bytes: int
    clock_limit_ms: int | None
    now_ms: int
    timestamps_replaced: int = 0
    _open: dict[int, Filling] = field(default_factory=dict, init=False)

    def pack(self, events: Sequence[Event]) -> Iterator[Filling]:
        """Yield batches as they become full, then those begun.

        Raises RecordRefused at an event that is too large, after everything before it
        has been yielded; nothing behind it is.
        """
        open_fillings = self._open
        hashes, partitions = self.hashes, self.partitions
        clock_limit_ms = _ALWAYS if self.clock_limit_ms is None else self.clock_limit_ms
        now_ms = self.now_ms
        unkeyed = next(self.unkeyed)
        for event in events:
            _, _, key, value, headers, time_ms, partition_key, _ = event
            if abs(now_ms - time_ms) >= clock_limit_ms:
                time_ms = now_ms
                self.timestamps_replaced += 1
            while True:
                partition = (
                    unkeyed
                    if partition_key is None
                    else hashes[partition_key] % partitions
                )
                filling = open_fillings.get(partition)
                if filling is None:
                    yield from self._begin(partition, event, time_ms)
                    break
                taken = filling.encode(filling.count, time_ms, key, value, headers)
                if taken is not None:
                    filling.count += 1
                    filling.last_ms = time_ms
                    break
                yield self._filled(partition)
                if partition_key is None:
                    unkeyed = next(self.unkeyed)
        yield from self._drain()

    def _begin(self, partition: int, event: Event, time_ms: int) -> Iterator[Filling]:
        """Open a batch with its first record, which is the only one that can be large.

        A builder takes any first record, and none that does not fit behind it.
        """
        builder = self.new_builder()
        builder.append(
            timestamp=time_ms, key=event.key, value=event.value, headers=event.headers
        )
        size = builder.size()
        if size > self.max_record_bytes:
            yield from self._drain()
            raise too_large(
                event.event_id,
                self.topic,
                size,
                f"CDC_KAFKA__MAX_REQUEST_BYTES is {self.max_record_bytes}",
            )
        self._open[partition] = Filling(
            partition, builder, builder.encode, event.event_id, time_ms, time_ms
        )

    def _filled(self, partition: int) -> Filling:
        filling = self._open.pop(partition)
        filling.builder.filled(filling.count)
        return filling

    def _drain(self) -> Iterator[Filling]:
        while self._open:
            yield self._filled(next(iter(self._open)))


def spread(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Group events by topic, each group in order."""
    first = events[0].topic
    # A list, because a generator costs three times as much for each event.
    if all([event.topic is first for event in events]):  # noqa: C419
        return {first: list(events)}
    topics: dict[str, list[Event]] = {}
    for event in events:
        group = topics.get(event.topic)
        if group is None:
            topics[event.topic] = [event]
        else:
            group.append(event)
    return topics


def now_ms() -> int:
    """Return the time as Kafka counts it."""
    return time.time_ns() // 1_000_000
