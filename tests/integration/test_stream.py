"""The replication stream on a real line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from cdc.errors import StreamLost
from cdc.stream import ReplicationStream
from cdc.wal import pgoutput
from slots.connect import Target, connect
from slots.lsn import ZERO
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source
    from tests.proxy import Proxy


async def test_a_quiet_server_is_asked_and_a_line_that_swallows_everything_is_left(
    source_of: Callable[..., Awaitable[Source]],
    proxy: Callable[..., Awaitable[Proxy]],
) -> None:
    """An idle walsender that hears from us says nothing by itself, for hours."""
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    between = await proxy(*source.host_and_port)
    target = Target(dsn=SecretStr(source.dsn_through(between)))
    loop = asyncio.get_running_loop()

    async with ReplicationStream(
        await connect(target, replication=True),
        publication="walferry",
        status_interval_s=0.2,
        silence_timeout_s=1.0,
    ) as stream:
        await stream.start(source.slot, pgoutput.options("walferry"), at=ZERO)
        began = loop.time()

        def has_outlived_its_limit() -> bool:
            assert not stream.ended.is_set(), stream.failure
            return loop.time() - began > 3.0

        await eventually(has_outlived_its_limit, 10.0)

        between.stall()
        await eventually(stream.ended.is_set, 10.0, what="the dead line is left")
        while stream.failure is None or stream._frames:
            await stream.read()
        with pytest.raises(StreamLost, match="not a byte"):
            await stream.read()


async def test_a_line_that_brings_one_byte_at_a_time_brings_everything(
    source_of: Callable[..., Awaitable[Source]],
    proxy: Callable[..., Awaitable[Proxy]],
) -> None:
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    await source.insert_event("order", "k", payload="x" * 300)
    between = await proxy(*source.host_and_port)
    target = Target(dsn=SecretStr(source.dsn_through(between)))
    decoder = pgoutput.Decoder()
    kinds = []

    async with ReplicationStream(
        await connect(target, replication=True), publication="walferry"
    ) as stream:
        between.chunk(1)
        await stream.start(source.slot, pgoutput.options("walferry"), at=ZERO)
        async with asyncio.timeout(20):
            while "Commit" not in kinds:
                kinds += [
                    type(decoder.decode(frame)).__name__
                    for frame in await stream.read()
                    if isinstance(frame, bytes)
                ]

    assert kinds[-4:] == ["Begin", "Relation", "Insert", "Commit"]
