"""Kafka: idempotent, acknowledged by all replicas, in order within a partition.

A record batch that fails, or that nobody answers in time, breaks the sink: its producer
sends nothing more (rule 10), every delivery without an outcome fails, and so does every
``publish()`` until the sink is left and entered again. What a refusal has taught is
kept, so that sending the same events again gets further.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from cdc.errors import CdcError, SinkUncertain
from cdc.sinks.kafka_batches import KafkaDelivery, Packer, Shipment, now_ms, spread
from cdc.sinks.kafka_missing import MissingTopics, fail, pauses_s
from cdc.sinks.kafka_options import producer_arguments
from cdc.sinks.kafka_outcomes import Lessons
from cdc.sinks.kafka_partition import KeyHashes
from cdc.sinks.kafka_producer import Producer
from cdc.sinks.kafka_requirements import check_cluster
from cdc.sinks.kafka_topics import TopicDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from cdc.finding import Finding
    from cdc.outbox import Event, EventBatch
    from cdc.sinks.kafka_batches import Filling
    from cdc.sinks.kafka_options import KafkaOptions
    from cdc.sinks.kafka_topics import Topic

_log = structlog.get_logger("cdc.sinks.kafka")


class KafkaSink:
    """Publishes to a Kafka cluster; lives across sessions, with a producer for each.

    Args:
        options: how to reach the cluster, and limits.

    Attributes:
        timestamps_replaced: records published with the time of publishing because the
            broker refuses the commit time.

    Raises SettingsError for options that cannot work.

    """

    def __init__(self, options: KafkaOptions) -> None:
        producer_arguments(options)
        self._options = options
        self._hashes = KeyHashes()
        self._lessons = Lessons()
        self._missing = MissingTopics(options.bootstrap_servers)
        self._producer: Producer | None = None
        self._directory: TopicDirectory | None = None
        self._broken: CdcError | None = None
        self._unanswered: set[asyncio.Future[None]] = set()
        self._seeker: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self.timestamps_replaced = 0

    async def __aenter__(self) -> Self:
        self._broken = None
        await self._start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._seeker is not None:
            self._seeker.cancel()
            await asyncio.wait([self._seeker])
            self._seeker = None
        left = SinkUncertain("left before the broker had answered")
        self._missing.fail(left)
        self._fail_unanswered(left)
        if self._producer is not None:
            await self._producer.discard()
            self._producer = None

    async def publish(self, batch: EventBatch) -> KafkaDelivery:
        """Queue a batch at the producer; hold events of topics that do not exist.

        Waits while the queues of the producer are full.
        """
        if self._broken is not None:
            raise self._broken
        delivery = KafkaDelivery(self)
        try:
            async with self._turn:
                await self._publish(spread(batch.events), delivery)
        except CdcError as exc:
            first = self._break(exc)
            # What stands before a refused record is delivered, not thrown away with
            # the session that the refusal ends.
            await delivery.answers(self._options.delivery_timeout_s)
            raise first from exc.__cause__
        return delivery

    @property
    def troubles(self) -> Sequence[str]:
        """Topics that are waited for."""
        if self._directory is None:
            return ()
        return self._missing.lines(self._directory.reasons)

    async def check(self, constant_topics: Sequence[str]) -> list[Finding]:
        """Test the cluster on connections of its own."""
        return await check_cluster(self._options, constant_topics)

    def give_up(self, shipment: Shipment) -> CdcError:
        """Break, because a shipment has had no answer in time; return the error."""
        error = SinkUncertain(
            f"{shipment.where}: no answer within"
            f" {self._options.delivery_timeout_s:g} s for {shipment.count} events from"
            f" {shipment.first_id} on; the outcome is unknown",
            hint="they are sent again; look whether the partition has a leader and"
            " enough replicas in sync",
        )
        return self._halt(error)

    async def _publish(
        self, groups: dict[str, list[Event]], delivery: KafkaDelivery
    ) -> None:
        if self._entered.is_worn:
            await self._renew()
        await self._topics.find([topic for topic in groups if not self._knows(topic)])
        for topic, events in groups.items():
            # Asked again for each: sending waits, and topics come and go meanwhile.
            known = None if topic in self._missing else self._topics.known(topic)
            if known is None:
                self._hold(topic, events, delivery)
            else:
                await self._send(known, events, delivery)

    async def _send(
        self, topic: Topic, events: Sequence[Event], delivery: KafkaDelivery
    ) -> None:
        """Pack events of one topic and queue each record batch as it becomes full."""
        producer, options, lessons = self._entered, self._options, self._lessons
        limit = lessons.batch_limit(
            topic.name,
            options.batch_bytes,
            options.max_request_bytes,
            topic.limit_bytes,
        )
        packer = Packer(
            topic=topic.name,
            new_builder=lambda: producer.new_batch(limit),
            hashes=self._hashes,
            partitions=topic.partitions,
            unkeyed=topic.unkeyed,
            max_record_bytes=options.max_request_bytes,
            clock_limit_ms=lessons.clock_limits.get(topic.name),
            now_ms=now_ms(),
        )
        try:
            for filling in packer.pack(events):
                delivery.sent.append(await self._ship(producer, topic, filling))
        finally:
            self.timestamps_replaced += packer.timestamps_replaced

    async def _ship(
        self, producer: Producer, topic: Topic, filling: Filling
    ) -> Shipment:
        shipment = filling.shipment(topic, self._options.delivery_timeout_s)
        answer = await producer.submit(filling.builder, shipment)
        self._unanswered.add(shipment.outcome)
        # The one place for a callback: whoever awaits the answer learns of a failure
        # after the sender, which by then has sent what is queued behind.
        answer.add_done_callback(lambda done: self._answered(shipment, done))
        return shipment

    def _answered(self, shipment: Shipment, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        outcome = shipment.outcome
        if outcome.done():
            # The sink has been broken or left; this is the producer's last word.
            return
        self._unanswered.discard(outcome)
        if error is None and not answer.cancelled():
            outcome.set_result(None)
            return
        cause = error or asyncio.CancelledError()
        verdict = self._lessons.verdict(shipment, cause, now_ms())
        verdict.__cause__ = cause
        fail(outcome, self._halt(verdict))

    def _halt(self, error: CdcError) -> CdcError:
        """Stop the producer at once; return what broke the sink first."""
        first = self._break(error)
        self._entered.halt()
        self._fail_unanswered(first)
        return first

    def _break(self, error: CdcError) -> CdcError:
        """Take nothing more; return what broke the sink first.

        Batches on their way stay there: each has an outcome of its own.
        """
        if self._broken is None:
            self._broken = error
        self._missing.fail(self._broken)
        return self._broken

    def _fail_unanswered(self, error: CdcError) -> None:
        for outcome in self._unanswered:
            fail(outcome, error)
        self._unanswered.clear()

    @property
    def _entered(self) -> Producer:
        assert self._producer is not None  # noqa: S101 - publish() comes after entering
        return self._producer

    @property
    def _topics(self) -> TopicDirectory:
        assert self._directory is not None  # noqa: S101 - as above
        return self._directory

    async def _start(self) -> None:
        producer = Producer(self._options)
        await producer.start()
        directory = TopicDirectory(producer.client, self._options)
        try:
            await directory.require(self._options.required_topics)
        except BaseException:
            await producer.discard()
            raise
        self._producer, self._directory = producer, directory

    async def _renew(self) -> None:
        """Let another producer take over, once this one has all its answers."""
        limit_s = self._options.delivery_timeout_s
        if self._unanswered:
            _, late = await asyncio.wait(list(self._unanswered), timeout=limit_s)
            if late:
                raise SinkUncertain(f"Kafka: no answer within {limit_s:g} s")
        if self._broken is not None:
            raise self._broken
        await self._entered.discard()
        self._producer = None
        await self._start()
        _log.info("producer_renewed", reason="sequence numbers were running out")

    def _knows(self, topic: str) -> bool:
        return topic in self._missing or self._topics.known(topic) is not None

    def _hold(self, topic: str, events: list[Event], delivery: KafkaDelivery) -> None:
        is_new = topic not in self._missing
        self._missing.hold(topic, events, delivery)
        if is_new:
            line = self._missing.lines(self._topics.reasons)[-1]
            _log.warning("topic_missing", topic=topic, trouble=line)
        if self._seeker is None or self._seeker.done():
            self._seeker = asyncio.create_task(self._seek(), name="topic-seeker")

    async def _seek(self) -> None:
        """Look for missing topics, ever less often; send what is held for them."""
        asked = 0
        pauses = pauses_s()
        try:
            while self._missing and self._broken is None:
                if len(self._missing) > asked:
                    pauses = pauses_s()
                await asyncio.sleep(next(pauses))
                asked = len(self._missing)
                await self._topics.find(self._missing.topics)
                for topic in self._missing.topics:
                    await self._release(topic)
        except CdcError as exc:
            self._break(exc)
        except Exception as exc:  # noqa: BLE001 - a bug: the deliveries tell of it
            self._break(CdcError(f"held events cannot be sent: {exc!r}"))

    async def _release(self, name: str) -> None:
        while self._broken is None:
            async with self._turn:
                topic = self._topics.known(name)
                if topic is None:
                    return
                held = self._missing.first(name)
                if held is None:
                    _log.info("topic_found", topic=name)
                    return
                await self._send(topic, held.events, held.delivery)
                self._missing.release(name, held)
