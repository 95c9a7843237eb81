"""What the broker refuses: named, remembered, and nothing overtakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc.errors import CdcError, RecordRefused, SinkDenied, SinkUncertain
from cdc.sinks.kafka import KafkaSink
from tests.kafka_events import batch, entered, event, events, now_ms, options, values
from tests.kafka_proxy import KafkaProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cdc.local import LocalKafka
    from cdc.outbox import Event
    from tests.kafka_records import Topics

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000


@pytest.fixture
async def produce_proxy(
    local_kafka: LocalKafka, kafka_proxy_port: int
) -> AsyncIterator[KafkaProxy]:
    port = local_kafka.port("PROXIED")
    async with KafkaProxy(port, listen_port=kafka_proxy_port) as proxy:
        yield proxy


async def resend(sink: KafkaSink, given: list[Event], *, attempts: int) -> int:
    """Do what sessions do: enter, publish, and again after a retryable failure."""
    for attempt in range(1, attempts + 1):
        async with entered(sink):
            try:
                await (await sink.publish(batch(given)))
            except CdcError as exc:
                if not exc.retryable:
                    raise
            else:
                return attempt
    raise AssertionError(f"not through after {attempts} attempts")


async def test_a_record_above_our_limit_is_refused_and_nothing_behind_it_goes(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """D03: named with id, size and limit; what was before it is published."""
    await topics.create(topic)
    large = event(topic, b"key", b"x" * 1_200_000)
    given = [*events(topic, 3), large, *events(topic, 3)]

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        with pytest.raises(RecordRefused) as refusal:
            await sink.publish(batch(given))
        with pytest.raises(RecordRefused) as again:
            await sink.publish(batch(events(topic, 1)))

    assert large.event_id in str(refusal.value)
    assert "1048576" in str(refusal.value)
    assert again.value is refusal.value
    records = await topics.read(topic, 3)
    assert values(records) == [b"0", b"1", b"2"]


async def test_batches_before_a_refusal_are_still_acknowledged(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        before = await sink.publish(batch(events(topic, 5)))
        with pytest.raises(RecordRefused):
            await sink.publish(batch(event(topic, b"key", b"x" * 1_200_000)))
        await before

    assert len(await topics.read(topic, 5)) == 5


async def test_a_record_above_the_topics_limit_is_refused_with_that_limit(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """D03: here the broker answers; the batch before it arrives, none behind it."""
    await topics.create(topic, configs={"max.message.bytes": "100000"})
    large = event(topic, b"key", b"x" * 200_000)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        before = await sink.publish(batch(events(topic, 3)))
        refused = await sink.publish(batch(large))
        behind = await sink.publish(batch(events(topic, 3)))
        await before
        with pytest.raises(RecordRefused, match="100000") as refusal:
            await refused
        with pytest.raises(RecordRefused):
            await behind

    assert large.event_id in str(refusal.value)
    assert values(await topics.read_to_end(topic)) == [b"0", b"1", b"2"]


async def test_nothing_overtakes_a_refusal_on_an_empty_partition(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """The broker would take what is queued behind: it has no sequence to miss."""
    await topics.create(topic, configs={"max.message.bytes": "100000"})

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        refused = await sink.publish(batch(event(topic, b"key", b"x" * 200_000)))
        behind = await sink.publish(batch(events(topic, 3)))
        for delivery in (refused, behind):
            with pytest.raises(RecordRefused):
                await delivery

    assert await topics.read_to_end(topic) == []


async def test_a_topics_own_limit_makes_batches_smaller_and_nothing_is_refused(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, configs={"max.message.bytes": "2000"})

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch(events(topic, 200))))

    arrived = values(await topics.read(topic, 200))
    assert arrived == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("code", [10, 18])
async def test_a_batch_that_is_too_large_is_sent_again_in_smaller_ones(
    topics: Topics, topic: str, produce_proxy: KafkaProxy, code: int
) -> None:
    """D03: with errors 10 and 18 for several records they are split, down to one."""
    await topics.create(topic)
    sink = KafkaSink(options(produce_proxy.address))
    given = events(topic, 8)
    produce_proxy.fail_produce(code)

    async with entered(sink):
        delivery = await sink.publish(batch(given))
        with pytest.raises(SinkUncertain, match="too large"):
            await delivery

    limit = sink._lessons.batch_limits[topic]
    assert limit < sum(len(one.event_id) for one in given)
    assert await resend(sink, given, attempts=2) == 1
    produce_proxy.fail_produce(code)
    async with entered(sink):
        with pytest.raises(SinkUncertain):
            await (await sink.publish(batch(given)))
    assert sink._lessons.batch_limits[topic] < limit


async def test_splitting_ends_with_the_one_record_that_is_refused(
    topics: Topics, topic: str, produce_proxy: KafkaProxy
) -> None:
    await topics.create(topic)
    sink = KafkaSink(options(produce_proxy.address))
    given = events(topic, 8)
    produce_proxy.fail_produce(*[10] * 100)

    with pytest.raises(RecordRefused, match=given[0].event_id):
        await resend(sink, given, attempts=10)


async def test_a_refused_commit_time_is_replaced_by_the_time_of_publishing(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """A row that old must not stop the relay; how often it happened is counted."""
    week = {"message.timestamp.before.max.ms": str(7 * DAY_MS)}
    await topics.create(topic, configs=week)
    old_ms, recent_ms = now_ms() - 30 * DAY_MS, now_ms() - 1000
    given = [
        event(topic, b"key", b"old", timestamp_ms=old_ms),
        event(topic, b"key", b"recent", timestamp_ms=recent_ms),
    ]
    sink = KafkaSink(options(kafka.bootstrap_servers))

    await resend(sink, given, attempts=5)

    old, recent = (await topics.read(topic, 2))[-2:]
    assert (old.value, recent.value) == (b"old", b"recent")
    assert abs(old.timestamp - now_ms()) < DAY_MS
    assert sink.timestamps_replaced > 0


async def test_a_time_in_the_future_is_replaced_too(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """The database's clock may be ahead of the broker's."""
    # The default of Kafka 4; before it a broker took any future.
    an_hour = {"message.timestamp.after.max.ms": "3600000"}
    await topics.create(topic, configs=an_hour)
    given = [event(topic, b"key", b"early", timestamp_ms=now_ms() + 3 * DAY_MS)]

    await resend(KafkaSink(options(kafka.bootstrap_servers)), given, attempts=5)

    (record,) = await topics.read(topic, 1)
    assert record.timestamp <= now_ms()


@pytest.mark.parametrize(
    ("code", "error"), [(29, SinkDenied), (31, SinkDenied), (45, SinkUncertain)]
)
async def test_an_error_is_named_with_its_topic_and_breaks_the_sink(
    topics: Topics,
    topic: str,
    produce_proxy: KafkaProxy,
    code: int,
    error: type[CdcError],
) -> None:
    """Rule 10: after a failed batch the producer is not used any more."""
    await topics.create(topic)
    sink = KafkaSink(options(produce_proxy.address))
    produce_proxy.fail_produce(code)

    async with entered(sink):
        delivery = await sink.publish(batch(events(topic, 2)))
        with pytest.raises(error, match=topic):
            await delivery
        with pytest.raises(error, match=topic):
            await sink.publish(batch(events(topic, 2)))

    assert await resend(sink, events(topic, 2), attempts=1) == 1


@pytest.mark.parametrize("code", [5, 6, 7, 19, 20])
async def test_what_passes_by_itself_is_retried_without_a_repeat(
    topics: Topics, topic: str, produce_proxy: KafkaProxy, code: int
) -> None:
    """The broker had taken the batch; resending an idempotent one adds nothing."""
    await topics.create(topic)
    produce_proxy.fail_produce(code)

    async with entered(KafkaSink(options(produce_proxy.address))) as sink:
        await (await sink.publish(batch(events(topic, 3))))

    assert produce_proxy.failed == 1
    assert values(await topics.read_to_end(topic)) == [b"0", b"1", b"2"]
