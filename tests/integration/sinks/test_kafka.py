"""What is published is what a consumer reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import NewPartitions

from cdc.errors import SinkUnavailable
from cdc.sinks.kafka import KafkaSink
from cdc.sinks.kafka_partition import murmur2
from tests.kafka_events import batch, entered, event, events, now_ms, options, values
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kafka_records import Topics

pytestmark = pytest.mark.kafka


async def test_records_are_the_events_byte_for_byte(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    sent_ms = now_ms() - 60_000
    given = event(topic, b"\x00key", b"\xff value", timestamp_ms=sent_ms)
    given.headers.extend([("note", "é".encode()), ("empty", b""), ("none", None)])

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch(given)))

    (record,) = await topics.read(topic, 1)
    assert (record.key, record.value) == (b"\x00key", b"\xff value")
    assert list(record.headers) == given.headers
    assert record.timestamp == sent_ms


async def test_null_empty_and_absent_stay_different(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """D09: an empty key is a key, NULL is none; JSON null is not a null value."""
    await topics.create(topic)
    pairs = [(b"", b""), (b"", None), (None, b"null"), (b"k", None)]

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        given = [event(topic, key, value) for key, value in pairs]
        await (await sink.publish(batch(given)))

    records = await topics.read(topic, len(pairs))
    assert [(record.key, record.value) for record in records] == pairs


async def test_a_key_goes_where_the_java_client_puts_it(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """D09: on ten partitions, by the table of values from elsewhere."""
    await topics.create(topic, partitions=10)
    table = {
        b"21": 0,
        b"foobar": 6,
        b"abc": 7,
        b"wu": 0,
        b"100:48069": 7,
        b"a-little-bit-long-string": 2,
        b"order-1": 6,
        "Zoë 😀".encode(): 5,
        b"": 1,
    }

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch([event(topic, key) for key in table])))

    records = await topics.read(topic, len(table))
    assert {record.key: record.partition for record in records} == table


async def test_the_partition_key_decides_where_the_record_key_does_not(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=10)
    given = event(topic, b"foobar", partition_key=b"abc")

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch(given)))

    (record,) = await topics.read(topic, 1)
    assert (record.key, record.partition) == (b"foobar", 7)


async def test_events_without_a_key_use_every_partition(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=3)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        for _ in range(6):
            await (await sink.publish(batch([event(topic, None) for _ in range(4)])))

    records = await topics.read(topic, 24)
    assert {record.partition for record in records} == {0, 1, 2}


async def test_order_of_a_key_is_kept_across_batches_that_fill_up(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=2)
    given = [
        event(topic, b"key-%d" % (number % 5), b"%06d" % number)
        for number in range(3000)
    ]

    sink = KafkaSink(options(kafka.bootstrap_servers, batch_bytes=2000))
    async with entered(sink):
        deliveries = [
            await sink.publish(batch(given[start : start + 300]))
            for start in range(0, 3000, 300)
        ]
        for delivery in deliveries:
            await delivery

    records = await topics.read(topic, 3000)
    assert len(records) == 3000
    for key in {one.key for one in given}:
        arrived = [record.value for record in records if record.key == key]
        assert arrived == [one.value for one in given if one.key == key]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
async def test_every_codec_arrives(
    kafka: Any, topics: Topics, topic: str, codec: Any
) -> None:
    await topics.create(topic)

    sink = KafkaSink(options(kafka.bootstrap_servers, compression=codec))
    async with entered(sink):
        await (await sink.publish(batch(events(topic, 100))))

    records = await topics.read(topic, 100)
    assert values(records) == [str(number).encode() for number in range(100)]


async def test_partitions_that_are_added_are_used(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """Keys go by the number of partitions that the topic has at the time."""
    await topics.create(topic, partitions=1)
    keys = [b"key-%d" % number for number in range(20)]

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch([event(topic, key) for key in keys])))
        await topics._admin.create_partitions({topic: NewPartitions(4)})
        await _refreshed(sink, topic, 4)
        await (await sink.publish(batch([event(topic, key, b"2") for key in keys])))

    records = await topics.read(topic, 40)
    later = {record.key: record.partition for record in records if record.value == b"2"}
    assert later == {key: (murmur2(key) & 0x7FFFFFFF) % 4 for key in keys}


async def _refreshed(sink: KafkaSink, topic: str, partitions: int) -> None:
    client = sink._entered.client

    async def grown() -> bool:
        await client.force_metadata_update()
        return len(client.cluster.partitions_for_topic(topic) or ()) == partitions

    await eventually(grown, what="the client knows the new partitions")


async def test_the_sink_is_entered_again_after_it_was_left(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    sink = KafkaSink(options(kafka.bootstrap_servers))

    for number in range(3):
        async with entered(sink):
            await (await sink.publish(batch(event(topic, b"k", b"%d" % number))))

    assert values(await topics.read(topic, 3)) == [b"0", b"1", b"2"]


async def test_a_producer_whose_sequence_numbers_run_out_is_replaced(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """After 2**31 records of a partition the numbers would wrap, and be refused."""
    await topics.create(topic)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        first = await sink.publish(batch(event(topic, b"k", b"0")))
        worn = sink._entered
        worn._sent[topic, 0] = 2**31 - 2**26
        second = await sink.publish(batch(event(topic, b"k", b"1")))
        third = await sink.publish(batch(event(topic, b"k", b"2")))
        for delivery in (first, second, third):
            await delivery
        assert sink._entered is not worn

    assert values(await topics.read(topic, 3)) == [b"0", b"1", b"2"]


async def test_nobody_there_is_unavailable_and_named() -> None:
    sink = KafkaSink(options("127.0.0.1:1"))

    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        await sink.__aenter__()


async def test_an_unknown_host_is_unavailable_and_named() -> None:
    sink = KafkaSink(options("no-such-host.invalid:9092"))

    with pytest.raises(SinkUnavailable, match=r"no-such-host\.invalid"):
        await sink.__aenter__()


async def test_a_silent_server_is_given_up_in_time() -> None:
    """I5: no wait is unbounded."""

    async def say_nothing(reader: asyncio.StreamReader, writer: Any) -> None:
        await reader.read()
        writer.transport.abort()
        was_left.set()

    was_left = asyncio.Event()
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(5):
        sink = KafkaSink(options(f"127.0.0.1:{port}", start_timeout_s=0.5))
        with pytest.raises(SinkUnavailable, match=r"0\.5 s"):
            await sink.__aenter__()
        await was_left.wait()
