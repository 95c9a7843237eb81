"""Stages for slots, and the command that looks at them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.slot_stage import SEGMENT_MB, SETTINGS, Command, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

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


@pytest.fixture(params=["15", "18"])
async def stage(
    request: pytest.FixtureRequest, stage_of: Callable[..., Awaitable[Stage]]
) -> Stage:
    """A stage on the oldest and the newest server of the ordinary run."""
    return await stage_of(request.param)


@pytest.fixture
def slots(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(capsys)
