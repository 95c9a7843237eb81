"""A Kafka of one's own is there when it says so, and gone when it is closed."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from cdc.errors import RequirementMissing
from cdc.local import DEFAULT_KAFKA_VERSION, LocalKafka
from cdc.local.kafka import _cluster_id
from cdc.local.kafka_jars import kafka_jars
from cdc.local.ports import is_listening
from tests.kafka_records import Topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.kafka


async def send(broker: LocalKafka, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=True
    ) as producer:
        await producer.send_and_wait(topic, value)


async def values(broker: LocalKafka, topic: str) -> list[bytes]:
    async with Topics(broker.bootstrap_servers, "nothing to delete") as topics:
        return [record.value for record in await topics.read_to_end(topic)]


async def test_what_is_acknowledged_outlives_a_kill_and_a_stop(
    private_kafka: Callable[..., LocalKafka], topic: str
) -> None:
    """The broker comes back with its data on the port it had."""
    broker = private_kafka()
    address = broker.bootstrap_servers
    async with Topics(address, "nothing to delete") as topics:
        await topics.create(topic)
    await send(broker, topic, b"before the kill")

    broker.kill()
    assert not is_listening(broker.port())
    broker.start_again()
    await send(broker, topic, b"before the stop")
    broker.stop()
    assert not is_listening(broker.port())
    broker.start_again()

    assert broker.bootstrap_servers == address
    assert await values(broker, topic) == [b"before the kill", b"before the stop"]

    broker.close()
    assert not broker.folder.exists()
    with socket.create_server(("127.0.0.1", broker.port())):
        pass  # the port can be had again


async def test_pythons_own_java_runs_the_same_kafka_and_a_frozen_one_is_silent(
    private_kafka: Callable[..., LocalKafka], topic: str
) -> None:
    broker = private_kafka(provider="python")
    async with Topics(broker.bootstrap_servers, "nothing to delete") as topics:
        await topics.create(topic)
        await send(broker, topic, b"before")

        broker.freeze()
        assert is_listening(broker.port())  # the kernel still accepts for it
        sending = asyncio.ensure_future(send(broker, topic, b"frozen"))
        done, _ = await asyncio.wait([sending], timeout=0.5)
        assert not done
        broker.thaw()
        await asyncio.wait_for(sending, 20)

        arrived = [record.value for record in await topics.read_to_end(topic)]
        assert arrived == [b"before", b"frozen"]


def test_a_cluster_identifier_is_never_taken_for_an_option() -> None:
    identifiers = {_cluster_id() for _ in range(1000)}
    assert len(identifiers) == 1000
    assert not any(identifier.startswith("-") for identifier in identifiers)
    assert {len(identifier) for identifier in identifiers} == {22}


def test_it_can_be_reached_by_loopback_only(local_kafka: LocalKafka) -> None:
    with pytest.raises(ConnectionRefusedError):
        # Listening on every address would answer here, too.
        socket.create_connection(("127.0.0.2", local_kafka.port()), timeout=1)


def test_a_property_that_kafka_refuses_is_told_with_its_own_words() -> None:
    with (
        pytest.raises(RequirementMissing, match=r"log\.segment\.bytes"),
        LocalKafka(properties={"log.segment.bytes": "1"}),
    ):
        pass


@pytest.mark.matrix
async def test_the_former_major_version_runs(
    private_kafka: Callable[..., LocalKafka], topic: str
) -> None:
    broker = private_kafka("3.9.1")
    async with Topics(broker.bootstrap_servers, "nothing to delete") as topics:
        await topics.create(topic)
    await send(broker, topic, b"before")
    broker.kill()
    broker.start_again()
    assert await values(broker, topic) == [b"before"]


@pytest.mark.matrix
def test_both_ways_of_getting_kafka_fetch_the_same_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = {}
    told: list[str] = []
    for provider in ("system", "python"):
        monkeypatch.setenv("WALFERRY_CACHE", str(tmp_path / provider))
        jars = kafka_jars(DEFAULT_KAFKA_VERSION, provider, told.append)
        fetched[provider] = {path.name for path in jars.folder.iterdir()}
    assert fetched["system"] == fetched["python"]
    assert f"kafka_2.13-{DEFAULT_KAFKA_VERSION}.jar" in fetched["python"]
    assert len(told) == 2
