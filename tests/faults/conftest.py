"""The stage that most faults share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.kafka_records import Topics
    from tests.postgres_source import Source

COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]


@pytest.fixture(params=COMBINATIONS, ids="-".join)
async def stage(
    request: pytest.FixtureRequest,
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    kafka: Any,
    topics: Topics,
    topic: str,
) -> Stage:
    """A Postgres that may be restarted, and the shared Kafka."""
    major, plugin = request.param
    source = await source_of(major, plugin, server=private_postgres(major))
    stage = Stage(
        source=source, kafka=kafka.bootstrap_servers, topics=topics, topic=topic
    )
    await stage.set()
    return stage


@pytest.fixture
async def shared_stage(
    source_of: Callable[..., Awaitable[Source]],
    kafka: Any,
    topics: Topics,
    topic: str,
) -> Stage:
    """A database on the shared Postgres 18, which nobody may restart."""
    source = await source_of()
    stage = Stage(
        source=source, kafka=kafka.bootstrap_servers, topics=topics, topic=topic
    )
    await stage.set()
    return stage
