"""Stages for slots, and the command that looks at them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cdc.local import LocalPostgres
from tests.slot_stage import SEGMENT_MB, SETTINGS, Command, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

TEST_SETTINGS = {"fsync": "off"}
MAJORS = [
    pytest.param(major, marks=[pytest.mark.matrix] if major in "14 16 17" else [])
    for major in ("14", "15", "16", "17", "18")
]


@pytest.fixture
async def stage_of(
    private_postgres: Callable[..., Any],
) -> AsyncIterator[Callable[..., Awaitable[Stage]]]:
    """Stages: ``await stage_of("18", max_slot_wal_keep_size="8MB")``."""
    async with AsyncExitStack() as stack:

        async def make(major: str, **settings: str) -> Stage:
            server = private_postgres(
                major, settings=SETTINGS | settings, wal_segment_mb=SEGMENT_MB
            )
            return await stack.enter_async_context(Stage(server))

        yield make


@pytest.fixture(scope="module", params=["15", "18"])
def stage_server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    """The server of a module's stages: oldest and newest of the ordinary run."""
    settings = TEST_SETTINGS | SETTINGS
    with LocalPostgres(
        request.param, settings=settings, wal_segment_mb=SEGMENT_MB
    ) as running:
        yield running


@pytest.fixture
async def stage(stage_server: LocalPostgres) -> AsyncIterator[Stage]:
    """A stage on which nothing has happened yet."""
    async with Stage(stage_server) as fresh:
        yield fresh


@pytest.fixture
def slots(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(capsys)
