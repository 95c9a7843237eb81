"""Kafka: idempotent, acknowledged by all replicas, in order within a partition.

What the client library leaves to us, found by experiment:

- After a batch that failed for good, the partition's sequence has a hole and every
  later send fails: a producer with a failed or unknown batch is thrown away (rule 10).
- Idempotent batches never expire inside the library: the time limit is ours.
- ``stop()`` does not return while the broker is down: it is bounded, then cut.
- Asking for the metadata of a topic may create it: what exists is read from the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from cdc.errors import CdcError, RequirementMissing, SinkUncertain
from cdc.sinks.kafka_batches import (
    KafkaDelivery,
    Records,
    refuse_oversize,
    spread,
)
from cdc.sinks.kafka_options import producer_arguments
from cdc.sinks.kafka_outcomes import Lessons, named
from cdc.sinks.kafka_partition import KeyHashes
from cdc.sinks.kafka_topics import TopicDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from cdc.finding import Finding
    from cdc.outbox import Event, EventBatch
    from cdc.sinks.kafka_options import KafkaOptions

_log = structlog.get_logger("cdc.sinks.kafka")


class KafkaSink:
    """Publishes to a Kafka cluster; lives across sessions, with a producer for each.

    Args:
        options: how to reach the cluster, and limits.

    Attributes:
        timestamps_replaced: records published with the time of publishing because the
            broker refuses the commit time.

    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._hashes = KeyHashes()
        self._lessons = Lessons()
        self._producer: Any = None
        self._topics: TopicDirectory | None = None
        self._broken: CdcError | None = None
        self._deliveries: deque[KafkaDelivery] = deque()
        self._held: dict[str, _Held] = {}
        self._turn = 0
        self.timestamps_replaced = 0

    async def __aenter__(self) -> Self:
        options = self._options
        self._broken = None
        self._producer = AIOKafkaProducer(**producer_arguments(options))
        self._topics = TopicDirectory(self._producer.client, options)
        try:
            async with asyncio.timeout(options.start_timeout_s):
                await self._producer.start()
            await self._require_topics(self._topics)
        except BaseException as exc:
            await self._close()
            if isinstance(exc, Exception):
                raise named(exc, f"Kafka at {options.bootstrap_servers}") from exc
            raise
        return self

    async def _require_topics(self, topics: TopicDirectory) -> None:
        for topic in self._options.required_topics:
            if not await topics.look_up(topic):
                raise RequirementMissing(
                    f"topic {topic} does not exist",
                    hint="create it, or set CDC_KAFKA__CREATE_TOPICS=true",
                )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def publish(self, batch: EventBatch) -> KafkaDelivery:
        """Hand a batch to the producer; hold events of topics that do not exist."""
        delivery = KafkaDelivery(self)
        self._remember(delivery)
        try:
            for topic, events in spread(batch.events).items():
                await self._publish(topic, events, delivery)
        except CdcError as exc:
            self._broken = self._broken or exc
            raise
        return delivery

    @property
    def troubles(self) -> Sequence[str]:
        """Topics that are waited for."""
        return [held.trouble(topic) for topic, held in self._held.items()]

    async def check(self, constant_topics: Sequence[str]) -> list[Finding]:
        """Test the cluster on connections of its own."""
        # Imported here: the admin client is needed by nobody else.
        from cdc.sinks.kafka_requirements import check_cluster  # noqa: PLC0415

        return await check_cluster(self._options, constant_topics)

    def verdict(self, records: Records, exc: Exception) -> CdcError:
        """Name what ended a batch; from here on the producer is not used any more."""
        error = self._lessons.verdict(records, exc)
        self._broken = self._broken or error
        return error

    # -- publishing -------------------------------------------------------------------

    async def _publish(
        self, topic: str, events: list[Event], delivery: KafkaDelivery
    ) -> None:
        if self._broken is not None:
            raise self._broken
        held = self._held.get(topic)
        if held is None:
            assert self._topics is not None  # noqa: S101 - the sink has been entered
            partitions = self._topics.known(topic)
            if partitions is None:
                partitions = await self._topics.look_up(topic)
            if partitions:
                await self._send(topic, partitions, events, delivery)
                return
            held = self._hold(topic)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        delivery.held.append(done)
        held.queue.append((events, delivery, done))

    async def _send(
        self, topic: str, partitions: int, events: list[Event], delivery: KafkaDelivery
    ) -> None:
        """Fill a builder for each partition, in order, and send it when it is full."""
        limit = self._lessons.batch_limits.get(topic, self._options.batch_bytes)
        self._turn += 1
        fillings: dict[int, _Filling] = {}
        for event in events:
            if event.partition_key is None:
                partition = self._turn % partitions
            else:
                partition = self._hashes.partition(event.partition_key, partitions)
            size = event.size_bytes
            refuse_oversize(event, self._options.max_request_bytes)
            filling = fillings.get(partition)
            if filling is not None and filling.size_bytes + size > limit:
                await self._flush(topic, partition, filling, delivery)
                filling = None
            if filling is None:
                filling = fillings[partition] = _Filling(self._producer.create_batch())
            filling.add(event, self._timestamp(topic, event))
        for partition, filling in fillings.items():
            await self._flush(topic, partition, filling, delivery)

    async def _flush(
        self, topic: str, partition: int, filling: _Filling, delivery: KafkaDelivery
    ) -> None:
        deadline = time.monotonic() + self._options.delivery_timeout_s
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    answer = await self._producer.send_batch(
                        filling.builder, topic, partition=partition
                    )
                break
            except KafkaTimeoutError:
                # The partition's queue is full: the library waits less than we do.
                continue
            except TimeoutError as exc:
                raise SinkUncertain(
                    f"topic {topic}, partition {partition}: nothing was taken for"
                    f" {self._options.delivery_timeout_s:g} s"
                ) from exc
            except Exception as exc:
                raise named(exc, f"topic {topic}, partition {partition}") from exc
        delivery.sent.append(
            Records(
                topic=topic,
                partition=partition,
                first_id=filling.first_id,
                count=filling.count,
                largest_bytes=filling.largest_bytes,
                timestamps_ms=(filling.earliest_ms, filling.latest_ms),
                answer=answer,
                deadline=deadline,
            )
        )

    def _timestamp(self, topic: str, event: Event) -> int:
        if self._lessons.takes_time(topic, event.timestamp_ms):
            return event.timestamp_ms
        self.timestamps_replaced += 1
        return time.time_ns() // 1_000_000

    def _remember(self, delivery: KafkaDelivery) -> None:
        while self._deliveries and all(
            records.answer.done() for records in self._deliveries[0].sent
        ):
            if any(not future.done() for future in self._deliveries[0].held):
                break
            self._deliveries.popleft()
        self._deliveries.append(delivery)

    # -- topics that do not exist -----------------------------------------------------

    def _hold(self, topic: str) -> _Held:
        held = self._held[topic] = _Held(
            asyncio.create_task(self._wait_for(topic), name=f"topic {topic}")
        )
        _log.warning("topic_missing", topic=topic, remedy="create it")
        return held

    async def _wait_for(self, topic: str) -> None:
        """Wait until a topic exists, then send what is held for it, in order."""
        assert self._topics is not None  # noqa: S101 - the sink has been entered
        held = None
        try:
            partitions = await self._topics.wait_for(topic)
            held = self._held[topic]
            while held.queue:
                events, delivery, done = held.queue[0]
                await self._send(topic, partitions, events, delivery)
                held.queue.popleft()
                done.set_result(None)
        except CdcError as exc:
            self._broken = self._broken or exc
            for _events, _delivery, done in self._held[topic].queue:
                done.set_exception(exc)
        finally:
            self._held.pop(topic, None)

    async def _close(self) -> None:
        """Leave in bounded time, giving up what has no outcome."""
        tasks = [held.task for held in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._held.clear()
        producer, self._producer = self._producer, None
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await producer.stop()
        except Exception:  # noqa: BLE001 - whatever keeps it, it is thrown away
            await self._cut(producer)
        while self._deliveries:
            self._deliveries.popleft().abandon()

    async def _cut(self, producer: Any) -> None:
        """End a producer that would not stop: its sender first, then its sockets."""
        sender = getattr(producer, "_sender", None)
        task = getattr(sender, "_sender_task", None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._options.close_timeout_s):
                await producer.client.close()


class _Filling:
    """A record batch that is being filled."""

    __slots__ = (
        "builder",
        "count",
        "earliest_ms",
        "first_id",
        "largest_bytes",
        "latest_ms",
        "size_bytes",
    )

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.first_id = ""
        self.count = 0
        self.size_bytes = 0
        self.largest_bytes = 0
        self.earliest_ms = 1 << 62
        self.latest_ms = 0

    def add(self, event: Event, timestamp_ms: int) -> None:
        """Append a record; the caller has seen to it that there is room."""
        if not self.count:
            self.first_id = event.event_id
        taken = self.builder.append(
            timestamp=timestamp_ms,
            key=event.key,
            value=event.value,
            headers=event.headers,
        )
        if taken is None:
            raise SinkUncertain(f"event {event.event_id} did not fit into its batch")
        self.count += 1
        self.size_bytes += event.size_bytes
        self.largest_bytes = max(self.largest_bytes, event.size_bytes)
        self.earliest_ms = min(self.earliest_ms, event.timestamp_ms)
        self.latest_ms = max(self.latest_ms, event.timestamp_ms)


class _Held:
    """Events of a topic that does not exist, in order."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.queue: deque[tuple[list[Event], KafkaDelivery, asyncio.Future[None]]] = (
            deque()
        )

    def trouble(self, topic: str) -> str:
        """Say what is missing and how much waits for it."""
        count = sum(len(events) for events, _delivery, _done in self.queue)
        return f"topic {topic} does not exist: create it, {count} events wait"
