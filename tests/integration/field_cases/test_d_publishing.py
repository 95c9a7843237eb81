"""Field cases D: publishing to a real Kafka, by ``cdc run`` as a process."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from slots.lsn import Lsn
from tests.relay_process import RelayProcess, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.kafka_records import Topics
    from tests.postgres_source import Source
    from tests.proxy import Proxy


@pytest.fixture
async def outbox(source_of: Callable[..., Awaitable[Source]]) -> Source:
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    return source


def to_kafka(source: Source, servers: str, topic: str, **more: str) -> dict[str, str]:
    return environment(
        source,
        CDC_KAFKA__BOOTSTRAP_SERVERS=servers,
        CDC_OUTBOX__TOPIC=topic,
        CDC_OUTBOX__COLUMNS__HEADERS="headers",
        **more,
    )


async def confirmed(source: Source) -> Lsn:
    row = await source.slot_row()
    assert row is not None
    return Lsn.parse(row["confirmed_flush_lsn"])


async def test_d01_a_broker_that_goes_away_for_a_while_costs_nothing(
    outbox: Source, kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """The replication connection lives on, and nothing comes twice."""
    await topics.create(topic)
    async with RelayProcess(to_kafka(outbox, kafka_proxy.address, topic)) as relay:
        await relay.streaming()
        ids = [await outbox.insert_event("order", f"k-{n % 3}") for n in range(5)]
        await topics.read(topic, 5)
        row = await outbox.slot_row()
        assert row is not None

        await kafka_proxy.cut()
        ids += [await outbox.insert_event("order", f"k-{n % 3}") for n in range(5)]
        await eventually(
            lambda: relay.metric("walferry_in_flight_events"), 10.0, what="it waits"
        )
        await kafka_proxy.restore()
        records = await topics.read(topic, 10, 40.0)

        assert [dict(r.headers)["id"].decode() for r in records] == ids
        now = await outbox.slot_row()
        assert now is not None
        assert now["active_pid"] == row["active_pid"]
        assert await relay.stop() == 0


async def test_d01_a_stop_does_not_wait_for_a_broker_that_never_comes_back(
    outbox: Source, kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    settings = to_kafka(outbox, kafka_proxy.address, topic, CDC_GRACE_S="1")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await kafka_proxy.cut()
        before = Lsn.parse(await outbox.value("SELECT pg_current_wal_lsn()::text"))
        event_id = await outbox.insert_event()
        await eventually(lambda: relay.metric("walferry_in_flight_events"), 10.0)
        began = asyncio.get_running_loop().time()

        assert await relay.stop() == 5

        assert asyncio.get_running_loop().time() - began < 8.0
        assert await confirmed(outbox) <= before
        assert "unacknowledged" in relay.stderr
    await kafka_proxy.restore()
    async with RelayProcess(settings) as again:
        await again.streaming()
        (record,) = await topics.read(topic, 1, 40.0)
    assert dict(record.headers)["id"].decode() == event_id


async def test_d03_a_record_that_is_too_large_stops_with_its_name(
    outbox: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    before = Lsn.parse(await outbox.value("SELECT pg_current_wal_lsn()::text"))
    connection = await outbox.open()
    async with connection.transaction():
        for number in range(3):
            await outbox.insert_event("order", "k", payload=number)
        large = await outbox.insert_event("order", "k", payload="x" * 1_200_000)
        for number in range(3, 6):
            await outbox.insert_event("order", "k", payload=number)

    settings = to_kafka(outbox, kafka.bootstrap_servers, topic)
    async with RelayProcess(settings) as relay:
        assert await relay.exited(30.0) == 5

    (line,) = [entry for entry in relay.log if entry["event"] == "giving_up"]
    assert large in line["reason"]
    assert "1048576" in line["reason"]
    assert line["remedy"]
    values = [record.value for record in await topics.read_to_end(topic)]
    assert values == [b"0", b"1", b"2"][: len(values)]
    assert await confirmed(outbox) <= before


async def test_d05_an_unknown_topic_is_waited_for_while_others_flow(
    outbox: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(f"{topic}.order")
    settings = to_kafka(outbox, kafka.bootstrap_servers, topic + ".{aggregatetype}")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await outbox.insert_event("ordr", "1")
        await outbox.insert_event("order", "2")
        await outbox.insert_event("ordr", "3")
        await topics.read(f"{topic}.order", 1)

        async def told() -> bool:
            status, reason = await relay.get("/readyz")
            return status == 503 and f"{topic}.ordr" in reason

        await eventually(told, 10.0, what="the missing topic is told")
        assert await relay.metric("walferry_in_flight_events") >= 1
        await topics.create(f"{topic}.ordr")
        records = await topics.read(f"{topic}.ordr", 2)
        assert [record.key for record in records] == [b"1", b"3"]
        assert await relay.stop() == 0


async def test_d05_an_illegal_topic_is_refused_with_the_event(
    outbox: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(f"{topic}.order")
    await outbox.insert_event("order", "1")
    bad = await outbox.insert_event("bad topic/!", "2")
    settings = to_kafka(outbox, kafka.bootstrap_servers, topic + ".{aggregatetype}")

    async with RelayProcess(settings) as relay:
        assert await relay.exited() == 5

    (line,) = [entry for entry in relay.log if entry["event"] == "giving_up"]
    assert bad in line["reason"]
    assert "not legal" in line["reason"]
    (record,) = await topics.read_to_end(f"{topic}.order")
    assert record.key == b"1"


async def test_d09_null_empty_and_absent_are_three_things(
    outbox: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    await outbox.execute("ALTER TABLE outbox ALTER aggregateid DROP NOT NULL")
    await topics.create(topic, partitions=3)
    settings = to_kafka(outbox, kafka.bootstrap_servers, topic)
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        for row in (
            "('o', '', 't', '1')",
            "('o', 'k', 't', NULL)",
            "('o', 'k', 't', 'null')",
            "('o', NULL, 't', '2')",
            "('o', 'foobar', 't', '3')",
        ):
            await outbox.execute(
                "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
                f" VALUES {row}"
            )
        records = await topics.read(topic, 5)
        await outbox.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES"
            " ('o', NULL, 't')"
        )
        assert await relay.exited() == 5

    found = {(record.key, record.value) for record in records}
    assert found == {
        (b"", b"1"),
        (b"k", None),
        (b"k", b"null"),
        (None, b"2"),
        (b"foobar", b"3"),
    }
    places = {record.key: record.partition for record in records}
    assert places[b""] == 0
    assert places[b"foobar"] == 0
    assert "neither key nor payload" in relay.stderr


async def test_e01_a_stop_waits_for_acknowledgements_and_tells_the_last_position(
    outbox: Source, kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    """The broker is slow; what is in flight when the signal comes is not repeated."""
    await topics.create(topic)
    settings = to_kafka(outbox, kafka_proxy.address, topic, CDC_GRACE_S="15")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await outbox.insert_event("order", "warm")
        await topics.read(topic, 1)
        kafka_proxy.delay(1.5)
        await outbox.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type)"
            " SELECT 'o', 'k', 't' FROM generate_series(1, 200)"
        )
        end = Lsn.parse(await outbox.value("SELECT pg_current_wal_lsn()::text"))

        async def all_are_in_flight() -> bool:
            return await relay.metric("walferry_in_flight_events") == 200

        await eventually(all_are_in_flight, 10.0)

        relay.signal(signal.SIGTERM)

        assert await relay.exited(25.0) == 0, relay.stderr
        assert await confirmed(outbox) >= end
        for noise in ("Task was destroyed", "never retrieved", "Unclosed", "Traceback"):
            assert noise not in relay.stderr
    kafka_proxy.delay(0.0)

    async with RelayProcess(settings) as again:
        await again.streaming()
        await outbox.insert_event("order", "last")
        records = await topics.read(topic, 202)
    assert len(records) == 202


async def test_e01_a_second_signal_ends_it_at_once(
    outbox: Source, kafka_proxy: Proxy, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    settings = to_kafka(outbox, kafka_proxy.address, topic, CDC_GRACE_S="60")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await outbox.insert_event("order", "warm")
        await topics.read(topic, 1)
        kafka_proxy.stall()
        await outbox.insert_event()
        await eventually(lambda: relay.metric("walferry_in_flight_events"), 10.0)
        relay.signal(signal.SIGTERM)
        await relay.logged(event="state", state="draining")

        relay.signal(signal.SIGINT)

        assert await relay.exited(10.0) == 5
    kafka_proxy.resume()


async def test_a_server_that_shuts_down_is_not_held_up_by_a_dead_broker(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    kafka_proxy: Proxy,
    topics: Topics,
    topic: str,
) -> None:
    server = private_postgres("18")
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    await topics.create(topic)
    settings = to_kafka(source, kafka_proxy.address, topic)
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        kafka_proxy.stall()
        event_id = await source.insert_event()
        await eventually(lambda: relay.metric("walferry_in_flight_events"), 10.0)

        async with asyncio.timeout(20):
            await asyncio.to_thread(server.restart, "fast")

        kafka_proxy.resume()
        records = await topics.read(topic, 1, 40.0)
        assert {dict(r.headers)["id"].decode() for r in records} == {event_id}
