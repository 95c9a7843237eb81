"""Outboxes to prune: with an index on the age and without, and in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.postgres_source import OUTBOX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

PARTITIONED = """
CREATE TABLE outbox (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
    payload jsonb, created_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (created_at)
"""


@pytest.fixture(params=["15", "18"])
async def plain(
    request: pytest.FixtureRequest, source_of: Callable[..., Awaitable[Source]]
) -> Source:
    """The table that `cdc init` makes."""
    source = await source_of(request.param, "pgoutput")
    await source.execute(OUTBOX)
    return source


@pytest.fixture(params=["by place", "by age"])
async def outbox(request: pytest.FixtureRequest, plain: Source) -> Source:
    """The same, walked through in both ways."""
    if request.param == "by age":
        await plain.execute("CREATE INDEX ON outbox (created_at)")
    return plain


@pytest.fixture(params=["15", "18"])
async def partitioned(
    request: pytest.FixtureRequest, source_of: Callable[..., Awaitable[Source]]
) -> Source:
    """Partitions for 2001, for from 2002 to the end of time, and for the rest."""
    source = await source_of(request.param, "pgoutput")
    await source.execute(PARTITIONED)
    for name, bounds in (
        ("old", "FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')"),
        ("current", "FOR VALUES FROM ('2002-01-01') TO (MAXVALUE)"),
        ("rest", "DEFAULT"),
    ):
        await source.execute(f"CREATE TABLE outbox_{name} PARTITION OF outbox {bounds}")
    await source.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
        " SELECT 'o', n::text, 't', '2001-06-01' FROM generate_series(1, 20) n"
    )
    return source
