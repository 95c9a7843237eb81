"""Servers that remember when transactions committed, and servers that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.local import LocalPostgres

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.postgres_source import Source

SETTINGS = {"fsync": "off", "max_prepared_transactions": "5"}
TRACKING = SETTINGS | {"track_commit_timestamp": "on"}


@pytest.fixture(scope="session", params=["15", "18"])
def tracking_server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    """A server with commit timestamps."""
    with LocalPostgres(request.param, settings=TRACKING) as running:
        yield running


@pytest.fixture
async def tracking(
    tracking_server: LocalPostgres, source_of: Callable[..., Awaitable[Source]]
) -> Source:
    """A fresh database on it, with an outbox."""
    source = await source_of(
        tracking_server.version, "pgoutput", server=tracking_server
    )
    await source.create_outbox()
    return source


@pytest.fixture(params=["15", "18"])
async def plain(
    request: pytest.FixtureRequest, source_of: Callable[..., Awaitable[Source]]
) -> Source:
    """A fresh database with an outbox on a server without commit timestamps."""
    source = await source_of(request.param, "pgoutput")
    await source.create_outbox()
    return source
