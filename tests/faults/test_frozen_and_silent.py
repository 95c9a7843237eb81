"""Nothing has died, but somebody does not answer: a frozen relay, a line that swallows.

The silence of a server with nothing to say is in ``tests/integration/test_stream.py``.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.faults.load import Load, outcome
from tests.relay_process import RelayProcess, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.faults.stage import Stage
    from tests.postgres_source import Source
    from tests.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.kafka]


@pytest.fixture
async def impatient(
    shared_stage: Stage,
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> Stage:
    """A server that ends a connection from which it hears nothing for two seconds."""
    server = private_postgres("18", settings={"wal_sender_timeout": "2s"})
    source = await source_of(server=server)
    await source.create_outbox()
    return replace(shared_stage, source=source)


async def is_free(stage: Stage) -> bool:
    row = await stage.source.slot_row()
    assert row is not None
    return not row["active"]


async def test_no_event_is_lost_when_the_relay_is_frozen(impatient: Stage) -> None:
    """Longer than the server waits for it."""
    load = Load(impatient.source.dsn)
    async with impatient.relay() as relay:
        async with load.running():
            await relay.streaming()
            await load.grown_by(400)
            relay.signal(signal.SIGSTOP)
            await eventually(lambda: is_free(impatient), 15.0, what="it is given up")
            relay.signal(signal.SIGCONT)
            await impatient.caught_up()
        await outcome(load, impatient.topics, impatient.topic)
        assert await relay.stop() == 0
        assert "Traceback" not in relay.stderr


async def test_a_relay_that_was_frozen_finds_its_place_taken_and_waits(
    impatient: Stage,
) -> None:
    """What it still held comes a second time; nothing is lost and nothing overtakes."""
    load = Load(impatient.source.dsn)
    async with impatient.relay() as frozen:
        await frozen.streaming()
        async with impatient.relay() as second:
            async with load.running():
                await second.logged(event="waiting")
                await load.grown_by(400)
                frozen.signal(signal.SIGSTOP)
                await second.streaming(15.0)
                await load.grown_by(400)
                frozen.signal(signal.SIGCONT)

                async def has_stepped_back() -> bool:
                    return (await frozen.get("/readyz"))[0] == 503

                await eventually(has_stepped_back, 15.0)
                await load.grown_by(400)
                assert await frozen.metric("walferry_leader") == 0
                assert await second.metric("walferry_leader") == 1
            await outcome(load, impatient.topics, impatient.topic, has_zombie=True)
            assert await second.stop() == 0
        await frozen.streaming()
        assert await frozen.stop() == 0


async def test_one_relay_at_a_time_publishes_whoever_ends_however(
    impatient: Stage,
) -> None:
    """E03: a rolling update, then a crash of the new one."""
    load = Load(impatient.source.dsn)
    async with load.running(), AsyncExitStack() as relays:
        first = await relays.enter_async_context(impatient.relay())
        await first.streaming()
        second = await relays.enter_async_context(impatient.relay())
        await second.logged(event="waiting")
        await load.grown_by(400)
        assert await second.metric("walferry_leader") == 0
        assert await second.metric("walferry_events_published_total") == 0
        assert await first.stop() == 0
        await second.streaming(10.0)
        third = await relays.enter_async_context(impatient.relay())
        await third.logged(event="waiting")
        await load.grown_by(400)
        await second.kill()
        await third.streaming(10.0)
        await load.grown_by(400)
        await impatient.caught_up()
        assert await third.stop() == 0
    async with impatient.relay() as last:
        await last.streaming()
        found = await outcome(load, impatient.topics, impatient.topic)
        assert await last.stop() == 0
    # Whoever left in order has told what it had delivered: only the kill repeats.
    assert found.replays <= 1


async def test_a_broker_that_swallows_everything_is_left_and_found_again(
    shared_stage: Stage, kafka_proxy: Proxy
) -> None:
    """Neither a reset nor an end of the connection, and no answer."""
    stage = replace(shared_stage, kafka=kafka_proxy.address)
    load = Load(stage.source.dsn)
    async with stage.relay(
        CDC_KAFKA__REQUEST_TIMEOUT_S="2", CDC_KAFKA__DELIVERY_TIMEOUT_S="3"
    ) as relay:
        async with load.running():
            await relay.streaming()
            await load.grown_by(400)
            kafka_proxy.stall()

            async def is_not_ready() -> bool:
                return (await relay.get("/readyz"))[0] == 503

            await eventually(is_not_ready, 15.0, what="the silence is noticed")
            before = await stage.confirmed()
            await load.grown_by(400)
            assert await stage.confirmed() == before
            kafka_proxy.resume()
            await stage.caught_up(20.0)
        await outcome(load, stage.topics, stage.topic)
        assert await relay.stop() == 0
        assert "Traceback" not in relay.stderr


async def test_lines_that_bring_one_byte_at_a_time_carry_everything(
    shared_stage: Stage,
    proxy: Callable[..., Awaitable[Proxy]],
    kafka_proxy: Proxy,
) -> None:
    stage = replace(shared_stage, kafka=kafka_proxy.address)
    server = await proxy(*stage.source.host_and_port)
    kafka_proxy.chunk(1)
    server.chunk(1)
    settings = environment(
        stage.source,
        CDC_POSTGRES__DSN=stage.source.dsn_through(server),
        CDC_KAFKA__BOOTSTRAP_SERVERS=stage.kafka,
        CDC_OUTBOX__TOPIC=stage.topic,
    )
    async with RelayProcess(settings) as relay:
        await relay.streaming(60.0)
        ids = [
            await stage.source.insert_event("order", "k", payload=number)
            for number in range(20)
        ]
        records = await stage.topics.read(stage.topic, 20, 30.0)
        assert await relay.stop() == 0
    assert [dict(record.headers)["id"].decode() for record in records] == ids


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_server_that_swallows_everything_is_left_and_found_again(
    shared_stage: Stage, proxy: Callable[..., Awaitable[Proxy]]
) -> None:
    """As patient as in production: a server may be busy for minutes."""
    between = await proxy(*shared_stage.source.host_and_port)
    load = Load(shared_stage.source.dsn)
    dsn = shared_stage.source.dsn_through(between)
    async with shared_stage.relay(CDC_POSTGRES__DSN=dsn) as relay:
        async with load.running():
            await relay.streaming()
            await load.grown_by(400)
            between.stall()

            async def is_not_ready() -> bool:
                return (await relay.get("/readyz"))[0] == 503

            await eventually(is_not_ready, 360.0, what="the silence is noticed")
            between.resume()
            await shared_stage.caught_up(60.0)
        await outcome(load, shared_stage.topics, shared_stage.topic)
        assert await relay.stop() == 0
        assert "Traceback" not in relay.stderr
