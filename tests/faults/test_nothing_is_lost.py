"""Under load, whatever dies: nothing is lost, keys keep their order, repeats are exact.

One round of each in the ordinary run; ``make faults`` has the many. With
``--log-level=INFO`` each tells what it has counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.load import Load, outcome
from tests.faults.stage import Stage
from tests.kafka_records import Topics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalKafka
    from tests.postgres_source import Source

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.kafka]

SEED = 4242
"""Of the moments at which relays are killed."""

_log = logging.getLogger(__name__)


async def killed_relays(stage: Stage, rounds: int) -> None:
    """Kill one relay after the other: while it starts, catches up, or streams."""
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    load = Load(stage.source.dsn)
    async with AsyncExitStack() as relays:
        relay = await relays.enter_async_context(stage.relay())
        async with load.running():
            for number in range(rounds):
                if number % 3:
                    await relay.streaming()
                await load.grown_by(chance.randint(50, 900))
                await relay.kill()
                relay = await relays.enter_async_context(stage.relay())
            await relay.streaming()
            await load.grown_by(400)
        found = await outcome(load, stage.topics, stage.topic)
        assert await relay.stop() == 0
    assert found.replays <= rounds
    # A kill costs what was not told yet, not what had been delivered long ago.
    assert found.repeats <= rounds * 2000


async def through(
    stage: Stage, rounds: int, fault: Callable[[Stage], Awaitable[Any]]
) -> None:
    """Let a fault happen under load; the one relay lives through all of them."""
    load = Load(stage.source.dsn)
    pauses = []
    async with stage.relay() as relay:
        async with load.running():
            for _ in range(rounds):
                await relay.streaming()
                await load.grown_by(400)
                await fault(stage)
                pauses.append(await stage.caught_up())
                await load.grown_by(400)
        await outcome(load, stage.topics, stage.topic)
        assert await relay.stop() == 0
        assert "Traceback" not in relay.stderr
    _log.info("caught up after %s s", [round(pause, 2) for pause in pauses])


async def restart_fast(stage: Stage) -> None:
    await stage.source.disconnect()
    await asyncio.to_thread(stage.source.server.restart, "fast")


async def restart_immediate(stage: Stage) -> None:
    await stage.source.disconnect()
    await asyncio.to_thread(stage.source.server.restart, "immediate")


async def terminate_walsender(stage: Stage) -> None:
    (row,) = await stage.source.fetch(
        "SELECT pg_terminate_backend(active_pid) AS done FROM pg_replication_slots"
        " WHERE slot_name = %s AND active",
        stage.source.slot,
    )
    assert row["done"]


FAULTS = [restart_fast, restart_immediate, terminate_walsender]


async def test_no_event_is_lost_when_the_relay_is_killed(stage: Stage) -> None:
    await killed_relays(stage, rounds=3)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_no_event_is_lost_and_the_relay_lives_when_a_server_goes(
    stage: Stage, fault: Callable[[Stage], Awaitable[Any]]
) -> None:
    await through(stage, 1, fault)


async def through_broker_kills(
    kafka: LocalKafka, source: Source, topic: str, rounds: int
) -> None:
    async with Topics(kafka.bootstrap_servers, topic) as topics:
        stage = Stage(
            source=source, kafka=kafka.bootstrap_servers, topics=topics, topic=topic
        )
        await stage.set()

        async def kill_and_start(_stage: Stage) -> None:
            await asyncio.to_thread(kafka.kill)
            await asyncio.to_thread(kafka.start_again)

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
