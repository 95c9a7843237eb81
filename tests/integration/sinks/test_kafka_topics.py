"""A topic that is missing is waited for, told about, and never made unasked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.protocol.metadata import MetadataRequest

from cdc.errors import RecordRefused, SinkUncertain
from cdc.sinks.kafka import KafkaSink
from tests.kafka_events import batch, entered, event, events, options, values
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.local import LocalKafka
    from tests.kafka_records import Topics

pytestmark = pytest.mark.kafka


async def test_a_missing_topic_is_told_while_others_flow_and_delivered_when_made(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """D05."""
    order, ordr = f"{topic}.order", f"{topic}.ordr"
    await topics.create(order)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        mixed = await sink.publish(
            batch([event(order, b"k", b"0"), event(ordr, b"k", b"0")])
        )
        waiting = asyncio.ensure_future(mixed)
        await (await sink.publish(batch(event(order, b"k", b"1"))))
        held = [await sink.publish(batch(event(ordr, b"k", b"%d" % n))) for n in (1, 2)]

        (trouble,) = sink.troubles
        assert f"topic '{ordr}' does not exist" in trouble
        assert kafka.bootstrap_servers in trouble
        assert "3 events wait" in trouble
        assert values(await topics.read(order, 2)) == [b"0", b"1"]
        assert not waiting.done()

        await topics.create(ordr)
        async with asyncio.timeout(15):
            await waiting
            for delivery in held:
                await delivery
        assert sink.troubles == []
        await (await sink.publish(batch(event(ordr, b"k", b"3"))))

    assert values(await topics.read(ordr, 4)) == [b"0", b"1", b"2", b"3"]


async def test_events_that_are_held_outlive_the_delivery_time_limit(
    kafka: Any, topics: Topics, topic: str
) -> None:
    sink = KafkaSink(options(kafka.bootstrap_servers, delivery_timeout_s=0.5))

    async with entered(sink):
        delivery = asyncio.ensure_future(await sink.publish(batch(events(topic, 2))))
        done, _ = await asyncio.wait([delivery], timeout=1.0)
        assert not done
        await topics.create(topic)
        async with asyncio.timeout(10):
            await delivery


async def test_what_is_held_is_given_up_when_the_sink_is_left(
    kafka: Any, topic: str
) -> None:
    sink = KafkaSink(options(kafka.bootstrap_servers))

    async with entered(sink):
        delivery = await sink.publish(batch(events(topic, 2)))

    with pytest.raises(SinkUncertain):
        await delivery
    assert sink.troubles == []


async def test_asking_for_a_topic_does_not_make_it(
    private_kafka: Callable[..., LocalKafka], topic: str
) -> None:
    """A broker that makes whatever it is asked about is not asked that way."""
    broker = private_kafka(properties={"auto.create.topics.enable": "true"})

    async with entered(KafkaSink(options(broker.bootstrap_servers))) as sink:
        await sink.publish(batch(events(topic, 2)))
        client = sink._entered.client

        async def made_by_asking() -> bool:
            answer = await client.send(
                client.get_random_node(),
                MetadataRequest([f"{topic}.asked"], allow_auto_topic_creation=True),
            )
            return bool(answer.topics[0][0] == 0)

        await eventually(made_by_asking, what="this broker makes what it is asked for")
        await sink._topics.find([topic])
        assert topic not in (await client.fetch_all_metadata()).topics()
        assert len(sink.troubles) == 1


async def test_a_missing_topic_is_made_where_that_is_asked_for(
    kafka: Any, topics: Topics, topic: str
) -> None:
    sink = KafkaSink(
        options(kafka.bootstrap_servers, create_topics=True, topic_partitions=3)
    )

    async with entered(sink):
        async with asyncio.timeout(15):
            await (await sink.publish(batch(events(topic, 3))))

    records = await topics.read(topic, 3)
    assert values(records) == [b"0", b"1", b"2"]
    assert len((await topics._admin.describe_topics([topic]))[0]["partitions"]) == 3


async def test_a_topic_that_cannot_be_made_is_told_with_the_brokers_reason(
    kafka: Any, topic: str
) -> None:
    sink = KafkaSink(
        options(kafka.bootstrap_servers, create_topics=True, topic_replication=5)
    )

    async with entered(sink):
        await sink.publish(batch(events(topic, 3)))
        (trouble,) = sink.troubles
        assert topic in trouble
        assert "eplication" in trouble


async def test_an_illegal_name_is_refused_without_asking_anybody(kafka: Any) -> None:
    """D05."""
    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        with pytest.raises(RecordRefused, match="bad topic"):
            await sink.publish(batch(event("bad topic/!")))


async def test_a_topic_that_is_deleted_and_made_again_gets_what_comes_later(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic)

    async with entered(KafkaSink(options(kafka.bootstrap_servers))) as sink:
        await (await sink.publish(batch(event(topic, b"k", b"0"))))
        await topics._admin.delete_topics([topic])
        client = sink._entered.client

        async def is_gone() -> bool:
            await client.force_metadata_update()
            return client.cluster.partitions_for_topic(topic) is None

        await eventually(is_gone, what="the client knows that the topic is gone")
        delivery = await sink.publish(batch(event(topic, b"k", b"1")))
        assert len(sink.troubles) == 1
        await topics.create(topic)
        async with asyncio.timeout(15):
            await delivery

    assert values(await topics.read(topic, 1)) == [b"1"]
