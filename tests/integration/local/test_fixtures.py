"""The fixtures that the other tests stand on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from aiokafka import AIOKafkaProducer

from tests.proxy import Direction
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import KafkaAddress
    from tests.kafka_records import Topics
    from tests.postgres_source import Source
    from tests.proxy import Proxy


async def test_a_source_has_an_outbox_and_a_slot_of_its_own(source: Source) -> None:
    await source.create_outbox()
    identifier = await source.insert_event("order", "7", payload={"n": 1})

    rows = await source.fetch("SELECT id::text, payload FROM outbox")
    slot = await source.slot_row()

    assert rows == [{"id": identifier, "payload": {"n": 1}}]
    assert slot is not None
    assert (slot["plugin"], slot["database"]) == (source.plugin, source.database)
    await source.drop_slot()
    assert await source.slot_row() is None


async def test_a_source_leaves_neither_database_nor_slot(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    outer = await source_of("15")
    async with type(outer)(outer.server, "15", "wal2json") as inner:
        await inner.create_outbox()
    found = await outer.fetch(
        "SELECT datname FROM pg_database WHERE datname = %s"
        " UNION SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s",
        inner.database,
        inner.slot,
    )
    assert found == []


@pytest.mark.kafka
async def test_records_are_read_as_they_were_sent(
    kafka: KafkaAddress, topic: str, topics: Topics
) -> None:
    await topics.create(topic, partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, str(number).encode())

    arrived = await topics.read(topic, 10)

    assert sorted(int(record.value) for record in arrived) == list(range(10))
    assert len(await topics.read_to_end(topic)) == 10
    with pytest.raises(AssertionError, match="10 of 11 records"):
        await topics.read(topic, 11, deadline_s=0.5)


@pytest.mark.kafka
async def test_a_transaction_shows_only_when_committed(
    kafka: KafkaAddress, topic: str, topics: Topics
) -> None:
    await topics.create(topic)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()

    records = await topics.read_to_end(topic)

    assert [record.value for record in records] == [b"committed"]


@pytest.mark.kafka
async def test_everything_to_kafka_goes_through_its_proxy(
    kafka_proxy: Proxy, topic: str, topics: Topics
) -> None:
    """A cut proxy fails a send that a direct connection would have carried."""
    await topics.create(topic)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka_proxy.address, request_timeout_ms=1000
    ) as producer:
        await producer.send_and_wait(topic, b"x" * 10_000)
        assert kafka_proxy.carried(Direction.TO_SERVER) > 10_000

        await kafka_proxy.cut()
        sending = asyncio.ensure_future(producer.send_and_wait(topic, b"y"))
        await asyncio.wait([sending], timeout=0.3)
        assert not sending.done() or sending.exception() is not None
        await kafka_proxy.restore()
        await asyncio.wait([sending], timeout=10)
    assert sending.done()


async def test_a_cut_proxy_ends_connections_and_refuses_new_ones(
    source_of: Callable[..., Awaitable[Source]], proxy: Callable[..., Awaitable[Proxy]]
) -> None:
    source = await source_of("18")
    line = await proxy(*source.host_and_port)
    dsn = source.dsn_through(line)
    connection = await psycopg.AsyncConnection.connect(dsn)

    await line.cut()

    with pytest.raises(psycopg.OperationalError):
        await connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(dsn)
    await line.restore()
    async with await psycopg.AsyncConnection.connect(dsn) as again:
        assert await (await again.execute("SELECT 1")).fetchone() == (1,)


async def test_a_stalled_proxy_keeps_connections_and_lets_nothing_through(
    source_of: Callable[..., Awaitable[Source]], proxy: Callable[..., Awaitable[Proxy]]
) -> None:
    source = await source_of("18")
    line = await proxy(*source.host_and_port)
    dsn = source.dsn_through(line)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        line.stall(Direction.TO_CLIENT)
        query = asyncio.ensure_future(connection.execute("SELECT 1"))
        await asyncio.wait([query], timeout=0.2)
        assert not query.done()
        line.resume()
        cursor: Any = await asyncio.wait_for(query, 5)
        assert await cursor.fetchone() == (1,)


async def test_a_proxy_delays_and_crumbles_without_losing_a_byte(
    source_of: Callable[..., Awaitable[Source]], proxy: Callable[..., Awaitable[Proxy]]
) -> None:
    source = await source_of("18")
    line = await proxy(*source.host_and_port)
    line.chunk(1)
    line.delay(0.05, Direction.TO_SERVER)
    async with await psycopg.AsyncConnection.connect(source.dsn_through(line)) as slow:
        started = asyncio.get_running_loop().time()
        cursor = await slow.execute("SELECT repeat('x', 5000)")
        row = await cursor.fetchone()
    assert row == ("x" * 5000,)
    assert asyncio.get_running_loop().time() - started >= 0.05


async def test_waiting_fails_with_what_was_seen_last() -> None:
    seen = iter([0, 0, 3])
    assert await eventually(lambda: next(seen)) == 3
    with pytest.raises(AssertionError, match=r"not within 0.05 s: the moon; last: 0"):
        await eventually(lambda: 0, 0.05, what="the moon")
