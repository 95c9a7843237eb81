"""What a topic holds already: every committed event of a time, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from cdc.errors import SinkUnavailable
from cdc.sinks.kafka_read_back import KafkaReadBack
from tests.kafka_events import options
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kafka_records import Topics
    from tests.proxy import Proxy

pytestmark = pytest.mark.kafka

# Within what a broker takes as a time of creation.
NOW_MS = time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def producing(servers: str, **changes: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=servers, **changes) as producer:
        yield producer


def headers(event_id: str) -> list[tuple[str, bytes]]:
    return [("first", b"x"), ("id", event_id.encode())]


async def held(read_back: KafkaReadBack, topic: str, *, since_ms: int = 0) -> list[str]:
    async with asyncio.timeout(60):
        return [
            event_id
            async for ids in read_back.ids(topic, since_ms=since_ms)
            for event_id in ids
        ]


@pytest.fixture
async def read_back(kafka: Any) -> AsyncIterator[KafkaReadBack]:
    async with KafkaReadBack(options(kafka.bootstrap_servers)) as entered:
        yield entered


async def test_the_ids_of_every_partition_are_told_once(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=4)
    wanted = [f"größe-{number}" for number in range(50)]
    async with producing(kafka.bootstrap_servers) as producer:
        for number, event_id in enumerate(wanted):
            await producer.send_and_wait(
                topic, b"{}", partition=number % 3, headers=headers(event_id)
            )

    assert sorted(await held(read_back, topic)) == sorted(wanted)


async def test_records_without_an_id_are_nobodys_events(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    async with producing(kafka.bootstrap_servers) as producer:
        for given in ([], [("ID", b"no")], [("id", None)], headers("yes")):
            await producer.send_and_wait(topic, b"{}", headers=given)
        await producer.send_and_wait(topic, b"", headers=[("id", b"\xff")])

    assert await held(read_back, topic) == ["yes", "\ufffd"]


async def test_an_aborted_transaction_has_held_nothing_and_markers_end_nothing(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    """A marker is the last thing in the topic, and in one partition the only thing."""
    await topics.create(topic, partitions=2)
    async with producing(kafka.bootstrap_servers, transactional_id=topic) as producer:
        for event_id, is_kept in [("a", True), ("b", False), ("c", True), ("d", False)]:
            await producer.begin_transaction()
            await producer.send_and_wait(
                topic, b"{}", partition=0, headers=headers(event_id)
            )
            if is_kept:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"", partition=1, headers=headers("e"))
        await producer.abort_transaction()

    assert await held(read_back, topic) == ["a", "c"]
    assert await held(read_back, topic, since_ms=1) == ["a", "c"]


async def test_what_an_open_transaction_holds_back_is_not_waited_for(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    """It is not committed; what comes of it a repeat makes good."""
    await topics.create(topic)
    async with producing(kafka.bootstrap_servers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"", headers=headers("a"))
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"", headers=headers("b"))

        assert await held(read_back, topic) == ["a"]

        await producer.commit_transaction()

    async def has_both() -> bool:
        # The answer to the commit may come before its marker is in the partition.
        return await held(read_back, topic) == ["a", "b"]

    await eventually(has_both, 10.0, what="the committed record is seen")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_record_of_a_time_or_later_is_left_out_however_times_are_mixed(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str, seed: int
) -> None:
    """Commit times are not in order: a long transaction's rows are sent late.

    Segments and indexes as small as a broker lets them be, so that a time is looked up
    in many of both.
    """
    chance = random.Random(seed)  # noqa: S311 - which cases, not which secrets
    await topics.create(
        topic, configs={"segment.bytes": "1048576", "index.interval.bytes": "200"}
    )
    times: dict[str, int] = {}
    async with producing(kafka.bootstrap_servers, max_batch_size=8192) as producer:
        for number in range(1500):
            drift_ms = chance.choice([0, 0, 0, -500, 500, -3000])
            times[str(number)] = time_ms = NOW_MS - 60_000 + number + drift_ms
            await producer.send(
                topic,
                bytes(2000),
                headers=headers(str(number)),
                timestamp_ms=time_ms,
            )
            if chance.random() < 0.2:
                await producer.flush()
        await producer.flush()
    asked = [
        chance.choice(list(times.values())) + chance.choice([0, 1]) for _ in "1234"
    ]

    for since_ms in [*asked, min(times.values()), max(times.values())]:
        seen = await held(read_back, topic, since_ms=since_ms)

        wanted = {one for one, time_ms in times.items() if time_ms >= since_ms}
        assert wanted <= set(seen)
        assert len(seen) == len(set(seen))
        # From the first of them on, and no earlier.
        assert times[seen[0]] >= since_ms

    assert await held(read_back, topic, since_ms=max(times.values()) + 1) == []


async def test_what_retention_has_taken_is_not_waited_for_before_or_meanwhile(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    async with producing(kafka.bootstrap_servers) as producer:
        for number in range(50):
            await producer.send_and_wait(
                topic, bytes(100_000), headers=headers(str(number))
            )
    await delete_before(kafka.bootstrap_servers, topic, 5)

    pieces = read_back.ids(topic, since_ms=0)
    first = await anext(pieces)
    await delete_before(kafka.bootstrap_servers, topic, 45)
    rest = [event_id async for ids in pieces for event_id in ids]

    assert first[0] == "5"
    assert rest[-5:] == [str(number) for number in range(45, 50)]
    assert "30" not in first + rest
    await delete_before(kafka.bootstrap_servers, topic, 50)
    assert await held(read_back, topic) == []
    assert await held(read_back, topic, since_ms=1) == []


@pytest.mark.parametrize("name", ["{topic}", "no such/topic", "t" * 300])
async def test_a_topic_that_is_not_there_holds_nothing_and_is_not_made(
    read_back: KafkaReadBack, topics: Topics, topic: str, name: str
) -> None:
    assert await held(read_back, name.format(topic=topic)) == []

    assert await topics.names() == []


async def test_an_empty_topic_holds_nothing(
    read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=3)

    assert await held(read_back, topic) == []
    assert await held(read_back, topic, since_ms=NOW_MS) == []


async def test_two_hundred_topics_are_read_over_the_same_connections(
    kafka_proxy: Proxy, kafka: Any, topics: Topics, topic: str
) -> None:
    names = [await topics.create(f"{topic}.{number}") for number in range(200)]
    async with producing(kafka.bootstrap_servers) as producer:
        for name in names:
            await producer.send_and_wait(name, b"", headers=headers(name))

    async with KafkaReadBack(options(kafka_proxy.address)) as read_back:
        assert await held(read_back, names[0]) == [names[0]]
        accepted = kafka_proxy.accepted
        for name in names[1:]:
            assert await held(read_back, name) == [name]
        assert kafka_proxy.accepted == accepted
    await eventually(lambda: not kafka_proxy.open_connections)


async def test_forty_thousand_records_pass_through_a_few_megabytes(
    kafka: Any, read_back: KafkaReadBack, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=2)
    async with producing(kafka.bootstrap_servers, max_batch_size=1 << 18) as producer:
        for number in range(40_000):
            await producer.send(
                topic, bytes(1200), partition=number % 2, headers=headers(str(number))
            )
        await producer.flush()

    count = 0
    tracemalloc.start()
    try:
        async for ids in read_back.ids(topic, since_ms=0):
            count += len(ids)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == 40_000
    assert peak < 16 << 20


async def test_a_broker_that_falls_silent_while_it_is_read_is_given_up_in_time(
    kafka_proxy: Proxy, kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    async with producing(kafka.bootstrap_servers) as producer:
        for number in range(40):
            await producer.send_and_wait(
                topic, bytes(100_000), headers=headers(str(number))
            )
    given = options(kafka_proxy.address, request_timeout_s=1.0)
    async with KafkaReadBack(given) as read_back:
        pieces = read_back.ids(topic, since_ms=0)
        assert await anext(pieces)

        kafka_proxy.stall()
        began = time.monotonic()
        with pytest.raises(SinkUnavailable, match=topic):
            await anext(pieces)

        assert time.monotonic() - began < 5


async def test_a_connection_that_breaks_meanwhile_is_made_again(
    kafka_proxy: Proxy, kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    wanted = [str(number) for number in range(40)]
    async with producing(kafka.bootstrap_servers) as producer:
        for event_id in wanted:
            await producer.send_and_wait(
                topic, bytes(100_000), headers=headers(event_id)
            )
    async with KafkaReadBack(options(kafka_proxy.address)) as read_back:
        pieces = read_back.ids(topic, since_ms=0)
        seen = await anext(pieces)

        await kafka_proxy.drop_connections()
        seen += [event_id async for ids in pieces for event_id in ids]

    assert seen == wanted


async def test_nobody_there_is_told_with_the_address() -> None:
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        await KafkaReadBack(options("127.0.0.1:1")).__aenter__()


async def delete_before(servers: str, topic: str, offset: int) -> None:
    """Have a partition begin at an offset, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)}
        )
    finally:
        await admin.close()
