"""Sources for the tests of what a run needs from Postgres."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.integration.requirements.stage import MAJORS, PASSWORD, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.postgres_source import Source


@pytest.fixture(params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def major(request: pytest.FixtureRequest) -> str:
    """A server version that walferry supports."""
    return str(request.param)


@pytest.fixture
async def stage(major: str, source_of: Callable[..., Awaitable[Source]]) -> Stage:
    """A source with outbox, publication and slot, for pgoutput."""
    source = await source_of(major, "pgoutput")
    await source.create_outbox()
    return Stage(source)


@pytest.fixture
async def bare_stage(major: str, source_of: Callable[..., Awaitable[Source]]) -> Stage:
    """A source with nothing in it, for pgoutput."""
    return Stage(await source_of(major, "pgoutput"))


@pytest.fixture
async def role(
    major: str, postgres_servers: Any
) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Makes roles that live for one test, with attributes: ``role("REPLICATION")``."""
    made: list[str] = []
    async with await psycopg.AsyncConnection.connect(
        postgres_servers[major].dsn(), autocommit=True
    ) as admin:

        async def make(attributes: str = "") -> str:
            name = f"role_{uuid.uuid4().hex[:12]}"
            await admin.execute(
                f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' {attributes}".encode()
            )
            made.append(name)
            return name

        yield make
        for name in made:
            await admin.execute(f"DROP ROLE {name}".encode())
