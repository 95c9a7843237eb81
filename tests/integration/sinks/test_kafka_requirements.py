"""What a check finds in a real cluster, and that it changes nothing there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cdc.finding import Status
from cdc.sinks.kafka import KafkaSink
from tests.kafka_events import options

if TYPE_CHECKING:
    from tests.kafka_records import Topics

pytestmark = pytest.mark.kafka


async def found(sink: KafkaSink, *topics: str) -> dict[str, tuple[Status, str]]:
    async with asyncio.timeout(15):
        findings = await sink.check(topics)
    for one in findings:
        assert bool(one.remedy) is (one.status is not Status.OK), one
        assert "\n" not in one.detail + one.remedy
    return {one.name: (one.status, one.detail) for one in findings}


async def test_a_cluster_and_a_topic_without_fault_are_ok(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=3)

    seen = await found(KafkaSink(options(kafka.bootstrap_servers)), topic)

    assert {status for status, _ in seen.values()} == {Status.OK}
    assert "3 partitions" in seen["kafka.topic"][1]
    assert set(seen) == {
        "kafka.broker",
        "kafka.credentials",
        "kafka.topic",
        "kafka.message_size",
        "kafka.retention",
    }


@pytest.mark.parametrize(
    ("configs", "name"),
    [
        ({"max.message.bytes": "50000"}, "kafka.message_size"),
        ({"retention.ms": "60000"}, "kafka.retention"),
        ({"cleanup.policy": "compact"}, "kafka.cleanup_policy"),
        ({"message.timestamp.type": "LogAppendTime"}, "kafka.timestamps"),
        ({"message.timestamp.before.max.ms": "60000"}, "kafka.timestamps"),
    ],
)
async def test_a_topic_that_may_hurt_later_is_a_warning(
    kafka: Any, topics: Topics, topic: str, configs: dict[str, str], name: str
) -> None:
    await topics.create(topic, configs=configs)

    seen = await found(KafkaSink(options(kafka.bootstrap_servers)), topic)

    warnings = {n for n, (status, _) in seen.items() if status is Status.WARNING}
    assert warnings == {name}
    assert topic in seen[name][1]


async def test_a_missing_topic_is_a_failure_unless_it_may_be_made_and_stays_missing(
    kafka: Any, topics: Topics, topic: str
) -> None:
    servers = kafka.bootstrap_servers

    missing = await found(KafkaSink(options(servers)), topic)
    to_make = await found(KafkaSink(options(servers, create_topics=True)), topic)

    assert missing["kafka.topic"] == (Status.FAILURE, f"topic {topic} does not exist")
    assert to_make["kafka.topic"][0] is Status.OK
    assert await topics.names() == []


async def test_an_illegal_topic_is_a_failure(kafka: Any) -> None:
    seen = await found(KafkaSink(options(kafka.bootstrap_servers)), "bad topic/!")

    assert seen["kafka.topic"][0] is Status.FAILURE


async def test_nobody_there_is_one_failure_that_names_the_address() -> None:
    seen = await found(KafkaSink(options("127.0.0.1:1")), "any")

    assert set(seen) == {"kafka.broker"}
    assert seen["kafka.broker"][0] is Status.FAILURE
    assert "127.0.0.1:1" in seen["kafka.broker"][1]
