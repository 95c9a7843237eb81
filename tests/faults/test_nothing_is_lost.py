"""Under load, whatever dies: nothing is lost, keys keep their order, repeats are exact.

One round of each in the ordinary run; ``make faults`` has the many.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.load import Load, outcome
from tests.kafka_records import Topics
from tests.relay_process import RelayProcess, environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalKafka, LocalPostgres
    from tests.postgres_source import Source

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.kafka]

RECOVERY_S = 10.0
NOISE = ("Task was destroyed", "never retrieved", "Unclosed", "Traceback")
COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]


@dataclass(slots=True)
class Stage:
    """A private Postgres, a Kafka, a topic, and the relay's environment."""

    postgres: LocalPostgres
    kafka: str
    source: Source
    topics: Topics
    topic: str

    @property
    def settings(self) -> dict[str, str]:
        return environment(
            self.source,
            CDC_KAFKA__BOOTSTRAP_SERVERS=self.kafka,
            CDC_OUTBOX__TOPIC=self.topic,
            CDC_OUTBOX__COLUMNS__HEADERS="headers",
            CDC_BACKOFF__MAX_S="2",
        )


@pytest.fixture(params=COMBINATIONS, ids="-".join)
async def stage(
    request: pytest.FixtureRequest,
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    kafka: Any,
    topics: Topics,
    topic: str,
) -> Stage:
    major, plugin = request.param
    postgres = private_postgres(major)
    source = await source_of(major, plugin, server=postgres)
    await source.create_outbox()
    await topics.create(topic, partitions=6)
    return Stage(postgres, kafka.bootstrap_servers, source, topics, topic)


async def killed_relays(stage: Stage, rounds: int) -> None:
    load = Load(stage.source.dsn)
    relay = RelayProcess(stage.settings)
    await relay.start()
    async with load.running():
        for _ in range(rounds):
            await relay.streaming()
            await load.grown_by(400)
            await relay.kill()
            relay = RelayProcess(stage.settings)
            await relay.start()
        await relay.streaming()
        await load.grown_by(400)
    found = await outcome(load, stage.topics, stage.topic)
    assert await relay.stop() == 0
    # A kill costs what was not told yet, not what had been delivered long ago.
    assert found.repeats <= rounds * 2000


async def through(
    stage: Stage, rounds: int, fault: Callable[[Stage], Awaitable[Any]]
) -> None:
    """Let a fault happen under load; the one relay lives through all of them."""
    load = Load(stage.source.dsn)
    async with RelayProcess(stage.settings) as relay:
        async with load.running():
            for _ in range(rounds):
                await relay.streaming()
                await load.grown_by(400)
                await fault(stage)
                back = time.monotonic()
                await relay.streaming(RECOVERY_S + 20)
                assert time.monotonic() - back < RECOVERY_S
                await load.grown_by(400)
        await outcome(load, stage.topics, stage.topic)
        assert await relay.stop() == 0
        for noise in NOISE:
            assert noise not in relay.stderr


async def restart_fast(stage: Stage) -> None:
    await asyncio.to_thread(stage.postgres.restart, "fast")


async def restart_immediate(stage: Stage) -> None:
    await asyncio.to_thread(stage.postgres.restart, "immediate")


async def terminate_walsender(stage: Stage) -> None:
    await stage.source.fetch(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
        " WHERE slot_name = %s AND active",
        stage.source.slot,
    )


FAULTS = [restart_fast, restart_immediate, terminate_walsender]


async def test_no_event_is_lost_when_the_relay_is_killed(stage: Stage) -> None:
    await killed_relays(stage, rounds=2)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_no_event_is_lost_and_the_relay_lives_when_a_server_goes(
    stage: Stage, fault: Callable[[Stage], Awaitable[Any]]
) -> None:
    await through(stage, 1, fault)


async def through_broker_kills(
    kafka: LocalKafka, source: Source, topic: str, rounds: int
) -> None:
    await source.create_outbox()
    async with Topics(kafka.bootstrap_servers, topic) as topics:
        await topics.create(topic, partitions=6)

        async def kill_and_start(_stage: Stage) -> None:
            await asyncio.to_thread(kafka.kill)
            await asyncio.to_thread(kafka.start_again)

        stage = Stage(source.server, kafka.bootstrap_servers, source, topics, topic)
        await through(stage, rounds, kill_and_start)


async def test_no_event_is_lost_and_the_relay_lives_when_the_broker_is_killed(
    private_kafka: Callable[..., LocalKafka],
    source_of: Callable[..., Awaitable[Source]],
    topic: str,
) -> None:
    kafka = await asyncio.to_thread(private_kafka)
    await through_broker_kills(kafka, await source_of(), topic, rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_no_event_is_lost_in_five_kills_of_the_broker(
    private_kafka: Callable[..., LocalKafka],
    source_of: Callable[..., Awaitable[Source]],
    topic: str,
) -> None:
    kafka = await asyncio.to_thread(private_kafka)
    await through_broker_kills(kafka, await source_of(), topic, rounds=5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_no_event_is_lost_in_fifty_kills(stage: Stage) -> None:
    await killed_relays(stage, rounds=50)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_no_event_is_lost_in_five_of_each(
    stage: Stage, fault: Callable[[Stage], Awaitable[Any]]
) -> None:
    await through(stage, 5, fault)
