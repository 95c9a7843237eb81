"""A broker that goes away, or falls silent: outcomes in time, order, no noise."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import TYPE_CHECKING

import pytest

from cdc.errors import SinkUnavailable, SinkUncertain
from cdc.sinks import kafka_log
from cdc.sinks.kafka import KafkaSink
from tests.kafka_events import batch, entered, event, events, options, values
from tests.kafka_records import Topics
from tests.proxy import Direction
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from cdc.local import LocalKafka
    from tests.proxy import Proxy

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
async def quiet(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """The event loop complains of nothing: no lost exception, no lost task."""
    loop = asyncio.get_running_loop()
    complaints: list[str] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(str(context)))
    yield
    gc.collect()
    await asyncio.sleep(0)
    # Cancelling what a stream server has accepted is the test proxy's own noise.
    assert [text for text in complaints if "proxy.py" not in text] == []
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert [task for task in left if "aiokafka" in repr(task)] == []
    assert not [r for r in caplog.records if r.levelno >= logging.CRITICAL]


async def test_what_is_published_while_the_broker_is_away_arrives_once_in_order(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """D01: nothing lost, nothing repeated, no new session needed."""
    await topics.create(topic, partitions=2)

    async with entered(KafkaSink(options(kafka_proxy.address))) as sink:
        await (await sink.publish(batch(events(topic, 2))))
        await kafka_proxy.cut()
        later = [event(topic, b"key", b"%d" % number) for number in (2, 3, 4)]
        delivery = await sink.publish(batch(later))
        waiting = asyncio.ensure_future(delivery)
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
        await kafka_proxy.restore()
        async with asyncio.timeout(15):
            await waiting

    assert values(await topics.read_to_end(topic)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_no_answer_in_time_is_an_unknown_outcome_and_breaks_the_sink(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """Rule 10; the broker has the records, so sending them again repeats them."""
    await topics.create(topic)
    sink = KafkaSink(options(kafka_proxy.address, delivery_timeout_s=1.0))

    async with entered(sink):
        await (await sink.publish(batch(event(topic, b"key", b"0"))))
        kafka_proxy.stall(Direction.TO_CLIENT)
        delivery = await sink.publish(batch(event(topic, b"key", b"1")))
        with pytest.raises(SinkUncertain, match=rf"{topic}.*1 s"):
            await delivery
        with pytest.raises(SinkUncertain):
            await sink.publish(batch(event(topic, b"key", b"2")))
    kafka_proxy.resume()
    await kafka_proxy.drop_connections()

    async with entered(sink):
        await (await sink.publish(batch(event(topic, b"key", b"1"))))
    assert values(await topics.read_to_end(topic)) == [b"0", b"1", b"1"]


async def test_publishing_waits_for_room_no_longer_than_the_delivery_may_take(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    sink = KafkaSink(options(kafka_proxy.address, delivery_timeout_s=1.0))

    async with entered(sink):
        await (await sink.publish(batch(event(topic))))
        kafka_proxy.stall()
        began = time.monotonic()
        in_flight, queued = [await sink.publish(batch(event(topic))) for _ in range(2)]
        with pytest.raises(SinkUncertain):
            await sink.publish(batch(event(topic)))
        assert time.monotonic() - began < 3
        for delivery in (in_flight, queued):
            with pytest.raises(SinkUncertain):
                await delivery


async def test_one_failure_fails_every_delivery_that_has_no_outcome(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """A delivery that nobody will answer any more is not waited for."""
    await topics.create(topic, partitions=4)
    sink = KafkaSink(options(kafka_proxy.address, delivery_timeout_s=1.0))

    async with entered(sink):
        await (await sink.publish(batch(event(topic))))
        kafka_proxy.stall()
        first = await sink.publish(batch(event(topic, b"a")))
        second = await sink.publish(batch(event(topic, b"b")))
        held = await sink.publish(batch(event(f"{topic}.missing")))
        with pytest.raises(SinkUncertain):
            await first
        async with asyncio.timeout(0.5):
            for delivery in (second, held):
                with pytest.raises(SinkUncertain):
                    await delivery


@pytest.mark.parametrize("trouble", ["cut", "stall", "stall with full buffers"])
async def test_leaving_takes_no_longer_than_it_may_whatever_the_broker_does(
    kafka_proxy: Proxy, topics: Topics, topic: str, trouble: str
) -> None:
    """D01 and E01: batches pending, broker gone or frozen for good."""
    await topics.create(topic, partitions=3)
    sink = KafkaSink(
        options(kafka_proxy.address, close_timeout_s=1.0, max_request_bytes=32 << 20)
    )
    await sink.__aenter__()
    await (await sink.publish(batch(event(topic))))
    if trouble == "cut":
        await kafka_proxy.cut()
    else:
        kafka_proxy.stall()
    value = b"x" * (16 << 20 if trouble.endswith("buffers") else 1)
    deliveries = [
        await sink.publish(batch(event(topic, b"key", value)))
        for _ in ("on its way", "in the queue")
    ]

    transports = sink._entered._transports()
    assert any(one.get_write_buffer_size() for one in transports) is (
        trouble == "stall with full buffers"
    )

    began = time.monotonic()
    await sink.__aexit__(None, None, None)

    assert time.monotonic() - began < 1.5
    assert not any(one.get_write_buffer_size() for one in transports)
    for delivery in deliveries:
        with pytest.raises(SinkUncertain):
            await delivery


async def test_a_full_queue_is_waited_for_longer_than_one_request_may_take(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """The library gives up a full queue after the time limit of a request."""
    await topics.create(topic)
    sink = KafkaSink(options(kafka_proxy.address, request_timeout_s=0.5))

    async with entered(sink):
        await (await sink.publish(batch(event(topic, b"key", b"0"))))
        kafka_proxy.stall()
        earlier = [
            await sink.publish(batch(event(topic, b"key", b"%d" % number)))
            for number in (1, 2)
        ]
        last = asyncio.create_task(sink.publish(batch(event(topic, b"key", b"3"))))
        done, _ = await asyncio.wait([last], timeout=1.5)
        assert not done
        kafka_proxy.resume()
        async with asyncio.timeout(15):
            for delivery in (*earlier, await last):
                await delivery

    assert values(await topics.read_to_end(topic)) == [b"0", b"1", b"2", b"3"]


async def test_a_broker_that_is_away_at_the_start_is_told_at_once(
    kafka_proxy: Proxy,
) -> None:
    await kafka_proxy.cut()
    sink = KafkaSink(options(kafka_proxy.address))

    async with asyncio.timeout(3):
        with pytest.raises(SinkUnavailable, match=kafka_proxy.address):
            await sink.__aenter__()

    await kafka_proxy.restore()
    async with entered(sink):
        pass


async def test_a_topic_that_cannot_be_looked_up_is_held_until_it_can(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """The broker goes away just when a topic is used for the first time."""
    await topics.create(topic)

    async with entered(KafkaSink(options(kafka_proxy.address))) as sink:
        await kafka_proxy.cut()
        delivery = await sink.publish(batch(events(topic, 3)))
        (trouble,) = sink.troubles
        assert "cannot be looked up" in trouble
        await kafka_proxy.restore()
        async with asyncio.timeout(15):
            await delivery

    assert values(await topics.read(topic, 3)) == [b"0", b"1", b"2"]


async def test_a_broker_killed_and_started_again_gets_everything_once(
    private_kafka: Callable[..., LocalKafka],
) -> None:
    broker = private_kafka()
    topic = "survives"
    sink = KafkaSink(options(broker.bootstrap_servers, create_topics=True))

    async with entered(sink):
        await (await sink.publish(batch(events(topic, 10))))
        await asyncio.to_thread(broker.kill)
        delivery = await sink.publish(batch(event(topic, b"key", b"10")))
        await asyncio.to_thread(broker.start_again)
        async with asyncio.timeout(30):
            await delivery
            await (await sink.publish(batch(event(topic, b"key", b"11"))))

    async with Topics(broker.bootstrap_servers, topic) as topics:
        arrived = values(await topics.read_to_end(topic))
    assert arrived == [b"%d" % number for number in range(12)]


@pytest.fixture
def attempts() -> Iterator[list[str]]:
    """What the library would say of its attempts to connect."""
    texts: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        texts.append(str(record.msg))
        return True

    logger = logging.getLogger("aiokafka")
    logger.filters.insert(0, note)
    yield texts
    logger.removeFilter(note)


async def test_the_library_repeats_itself_no_more_than_every_half_minute(
    kafka_proxy: Proxy,
    topics: Topics,
    topic: str,
    attempts: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    # Other tests have cut connections within the last half minute.
    kafka_log._QUIET._said.clear()
    await topics.create(topic)

    async with entered(KafkaSink(options(kafka_proxy.address))) as sink:
        caplog.clear()  # the test's own admin client, before there was a sink
        await (await sink.publish(batch(event(topic, b"key", b"a secret"))))
        await kafka_proxy.cut()
        await sink.publish(batch(event(topic)))
        failure = "Unable connect to node with id %s: %s"
        await eventually(lambda: attempts.count(failure) > 3, what="several attempts")

    said = [r.msg for r in caplog.records if r.name.startswith("aiokafka")]
    assert said.count(failure) == 1
    assert len(said) == len(set(said))
    assert "a secret" not in caplog.text
