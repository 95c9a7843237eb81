"""Pairs of a primary and its standby."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.standby_pair import StandbyPair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


@pytest.fixture
async def pair_of(
    private_postgres: Callable[..., Any], tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[StandbyPair]]]:
    """``await pair_of("18")``: a primary, its standby, and what ``cdc init`` makes."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(major: str = "18", plugin: str = "pgoutput") -> StandbyPair:
            server = private_postgres(major)
            pair = StandbyPair(server, tmp_path / "events", plugin)
            return await stack.enter_async_context(pair)

        yield make
