"""Positions in a compacted topic: the last word of the highest term, whatever happens.

Records of a topic are looked at as a consumer sees them, compaction or not: what a read
returns may not depend on whether the broker has cleaned already.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from cdc.errors import (
    RequirementMissing,
    SettingsError,
    SinkUnavailable,
    SinkUncertain,
)
from cdc.sinks import Kept
from cdc.sinks.kafka_positions import KafkaPositions
from tests.kafka_events import options
from tests.proxy import Direction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cdc.local import LocalKafka
    from tests.kafka_records import Topics
    from tests.proxy import Proxy

pytestmark = pytest.mark.kafka

COMPACTED = {"cleanup.policy": "compact"}


def document(number: int) -> bytes:
    return b'{"number": %d}' % number


@pytest.fixture
async def store(
    kafka: Any, topics: Topics, topic: str
) -> AsyncIterator[KafkaPositions]:
    """A store over a topic of its own that exists."""
    await topics.create(topic, configs=COMPACTED)
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as entered:
        yield entered


async def test_nothing_is_known_of_a_relay_that_has_written_nothing(
    store: KafkaPositions,
) -> None:
    assert await store.read("shop") is None


async def test_the_last_document_of_a_name_is_read_and_of_no_other(
    store: KafkaPositions,
) -> None:
    names = ["shop", "shop#2", "shop#0000000007", "#", "größe 😀", "a b/c"]
    for number, name in enumerate(names):
        await store.write(Kept(name, 7, document(0)))
        await store.write(Kept(name, 7, document(number)))

    seen = [await store.read(name) for name in names]

    assert seen == [Kept(name, 7, document(n)) for n, name in enumerate(names)]


async def test_a_relay_that_wakes_up_late_moves_nothing(
    kafka: Any, store: KafkaPositions, topic: str
) -> None:
    await store.write(Kept("shop", 4, document(40)))
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as later:
        await later.write(Kept("shop", 5, document(50)))

        await store.write(Kept("shop", 4, document(41)))

        assert await later.read("shop") == Kept("shop", 5, document(50))
        assert await store.read("shop") == Kept("shop", 5, document(50))


async def test_the_first_write_of_a_term_clears_the_older_ones_of_that_name_once(
    store: KafkaPositions, topics: Topics, topic: str
) -> None:
    for name, term in [("shop", 1), ("shop", 2), ("other", 1)]:
        await store.write(Kept(name, term, document(term)))
    await store.read("shop")

    for number in (30, 31):
        await store.write(Kept("shop", 3, document(number)))

    records = await topics.read_to_end(topic)
    assert [(record.key, record.value) for record in records] == [
        (b"shop#0000000001", document(1)),
        (b"shop#0000000002", document(2)),
        (b"shop#0000000001", None),
        (b"other#0000000001", document(1)),
        (b"shop#0000000003", document(30)),
        (b"shop#0000000002", None),
        (b"shop#0000000003", document(31)),
    ]
    assert await store.read("shop") == Kept("shop", 3, document(31))
    assert await store.read("other") == Kept("other", 1, document(1))


async def test_a_term_that_was_written_late_is_cleared_by_the_next_start(
    kafka: Any, store: KafkaPositions, topics: Topics, topic: str
) -> None:
    await store.write(Kept("shop", 5, document(5)))
    await store.write(Kept("shop", 4, document(4)))

    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as started:
        await started.write(Kept("shop", 6, document(6)))

    cleared = [r.key for r in await topics.read_to_end(topic) if r.value is None]
    assert cleared == [b"shop#0000000004", b"shop#0000000005"]


async def test_older_terms_beyond_one_batch_are_cleared_by_later_writes(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """The document itself is never left out for them."""
    await topics.create(topic, configs=COMPACTED)
    name = "n" * 5000
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        for term in range(100, 0, -1):
            await store.write(Kept(name, term, b"{}"))

        await store.write(Kept(name, 101, document(1)))
        first = await topics.read_to_end(topic)
        await store.write(Kept(name, 101, document(2)))
        second = await topics.read_to_end(topic)

        assert await store.read(name) == Kept(name, 101, document(2))
    assert 0 < sum(r.value is None for r in first) < 100
    assert sum(r.value is None for r in second) == 100


async def test_a_missing_topic_is_named_with_the_command_that_makes_it(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """Reading and writing make no topic: one made in passing would not be compacted."""
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        for asked in (store.read("shop"), store.write(Kept("shop", 1, b"{}"))):
            with pytest.raises(RequirementMissing, match=topic) as missing:
                await asked
            assert "cdc init" in missing.value.hint

    assert await topics.names() == []


def test_a_topic_that_no_broker_would_make_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="CDC_KAFKA__STATE_TOPIC"):
        KafkaPositions(options("127.0.0.1:1"), "no such/topic")


async def test_a_position_is_kept_over_a_restart_of_the_broker_between_two_writes(
    private_kafka: Callable[..., LocalKafka],
) -> None:
    """By the same store: nobody has to enter it again."""
    broker = private_kafka()
    given = options(broker.bootstrap_servers)
    async with KafkaPositions(given, "positions") as store:
        assert await store.make() == ["topic positions (compacted, 1 replicas)"]
        await store.write(Kept("shop", 1, document(1)))

        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start_again)

        assert await store.read("shop") == Kept("shop", 1, document(1))
        await store.write(Kept("shop", 1, document(2)))
        assert await store.read("shop") == Kept("shop", 1, document(2))


async def test_no_answer_in_time_is_an_unknown_outcome_and_the_next_write_goes_through(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """Rule 10: what has failed once sends nothing more, another producer does."""
    await topics.create(topic, configs=COMPACTED)
    given = options(kafka_proxy.address, delivery_timeout_s=1.0)
    async with KafkaPositions(given, topic) as store:
        await store.write(Kept("shop", 1, document(1)))
        kafka_proxy.stall(Direction.TO_CLIENT)

        began = time.monotonic()
        with pytest.raises(SinkUncertain, match=rf"{topic}.*no answer within 1 s"):
            await store.write(Kept("shop", 1, document(2)))
        assert time.monotonic() - began < 5

        kafka_proxy.resume()
        await kafka_proxy.drop_connections()
        await store.write(Kept("shop", 1, document(3)))
        assert await store.read("shop") == Kept("shop", 1, document(3))


async def test_a_write_that_was_left_is_followed_by_one_of_another_producer(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    await topics.create(topic, configs=COMPACTED)
    async with KafkaPositions(options(kafka_proxy.address), topic) as store:
        await store.write(Kept("shop", 1, document(1)))
        kafka_proxy.stall()
        writing = asyncio.create_task(store.write(Kept("shop", 1, document(2))))
        await asyncio.wait([writing], timeout=0.2)

        writing.cancel()
        await asyncio.wait([writing])
        kafka_proxy.resume()

        await store.write(Kept("shop", 1, document(3)))
        assert await store.read("shop") == Kept("shop", 1, document(3))
    assert writing.cancelled()


async def test_a_write_that_was_left_leaves_no_failure_behind_that_nobody_sees(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """A relay that is told to stop leaves the write that is under way."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    await topics.create(topic, configs=COMPACTED)
    async with KafkaPositions(options(kafka_proxy.address), topic) as store:
        await store.write(Kept("shop", 1, document(1)))
        kafka_proxy.stall()
        writing = asyncio.create_task(store.write(Kept("shop", 1, document(2))))
        await asyncio.wait([writing], timeout=0.2)
        writing.cancel()
        await asyncio.wait([writing])
    del writing
    gc.collect()
    assert complaints == []


async def test_reading_beside_a_silent_broker_ends_in_bounded_time(
    kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    await topics.create(topic, configs=COMPACTED)
    given = options(kafka_proxy.address, request_timeout_s=1.0)
    async with KafkaPositions(given, topic) as store:
        await store.write(Kept("shop", 1, document(1)))
        kafka_proxy.stall()

        began = time.monotonic()
        with pytest.raises(SinkUnavailable, match=topic):
            await store.read("shop")

        assert time.monotonic() - began < 5


async def test_nobody_there_is_told_with_the_address() -> None:
    store = KafkaPositions(options("127.0.0.1:1"), "positions")

    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        await store.__aenter__()


async def test_a_position_that_was_not_committed_is_none(
    kafka: Any, store: KafkaPositions, topic: str
) -> None:
    """Nor is an aborted tombstone the end of what was there."""
    await store.write(Kept("shop", 1, document(1)))
    async with transactional(kafka.bootstrap_servers, topic) as producer:
        await producer.begin_transaction()
        for key, value in [(b"shop#0000000001", None), (b"shop#0000000002", b"{}")]:
            await producer.send_and_wait(topic, key=key, value=value, partition=0)
        await producer.abort_transaction()

    assert await store.read("shop") == Kept("shop", 1, document(1))


async def test_what_stands_behind_an_open_transaction_is_waited_for_not_overlooked(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """An older position would be taken for the present one."""
    await topics.create(topic, configs=COMPACTED)
    given = options(kafka.bootstrap_servers, request_timeout_s=1.5)
    async with (
        KafkaPositions(given, topic) as store,
        transactional(kafka.bootstrap_servers, topic) as producer,
    ):
        await store.write(Kept("shop", 1, document(1)))
        await producer.begin_transaction()
        await producer.send_and_wait(topic, key=b"foreign", value=b"", partition=0)
        await store.write(Kept("shop", 1, document(2)))

        with pytest.raises(SinkUnavailable, match=r"transaction.*offset 1"):
            await store.read("shop")

        reading = asyncio.create_task(store.read("shop"))
        await producer.commit_transaction()
        assert await reading == Kept("shop", 1, document(2))


async def test_fifty_thousand_records_are_read_in_a_few_seconds(
    kafka: Any, store: KafkaPositions, topic: str
) -> None:
    """More than a topic of many relays holds between two cleanings."""
    value = document(0).ljust(600)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=5
    ) as producer:
        for number in range(50_000):
            key = b"relay%d#0000000001" % (number % 50)
            await producer.send(topic, key=key, value=value, partition=0)
        await producer.flush()
    await store.write(Kept("shop", 1, document(1)))

    began = time.monotonic()
    seen = await store.read("shop")
    took_s = time.monotonic() - began

    assert seen == Kept("shop", 1, document(1))
    assert took_s < 10


@contextlib.asynccontextmanager
async def transactional(servers: str, name: str) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that is no relay."""
    async with AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=name
    ) as producer:
        yield producer
