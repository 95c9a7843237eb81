"""The server widens transaction ids as we do, at the end of an epoch too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from cdc.xid import MASK, WIDENED, widen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

EDGES = [3, 750, 1 << 31, MASK - 1, MASK, MASK + 1, MASK + 4, 7 << 32, (7 << 32) + MASK]


@pytest.mark.parametrize("major", ["15", "18"])
async def test_sql_and_python_agree(
    source_of: Callable[..., Awaitable[Source]], major: str
) -> None:
    source = await source_of(major, "pgoutput")
    chance = random.Random(20261201)  # noqa: S311 - examples, no secrets
    xmaxes = EDGES + [chance.randrange(3, 1 << 62) for _ in range(200)]
    pairs = [
        (xmin, xmax)
        for xmax in xmaxes
        for xmin in (3, 750, MASK, xmax & MASK, (xmax - 1) & MASK, (xmax + 1) & MASK)
    ]
    widened = WIDENED.format(xmin="row_xid", xmax="snapshot_xmax")

    rows = await source.fetch(
        f"SELECT {widened} AS widened, row_xid::text::int8 AS xmin, snapshot_xmax"
        " FROM (SELECT x::text::xid AS row_xid, m AS snapshot_xmax"
        "         FROM unnest(%s::int8[], %s::int8[]) AS t(x, m)) AS ids",
        [xmin for xmin, _ in pairs],
        [xmax for _, xmax in pairs],
    )

    assert len(rows) == len(pairs)
    for row in rows:
        assert row["widened"] == widen(row["xmin"], row["snapshot_xmax"])
        assert row["widened"] <= row["snapshot_xmax"]


@pytest.mark.parametrize("major", ["15", "18"])
async def test_behind_the_end_of_an_epoch_rows_stand_where_they_were_written(
    source_of: Callable[..., Awaitable[Source]], major: str
) -> None:
    """The last transactions of epoch 6 and the first of epoch 7, read in epoch 7."""
    source = await source_of(major, "pgoutput")
    first = 7 << 32
    written = [first - 3, first - 1, first + 3, first + 4]
    widened = WIDENED.format(xmin="row_xid", xmax=str(first + 5))

    rows = await source.fetch(
        f"SELECT {widened} AS xid FROM unnest(%s::text[]::xid[]) AS row_xid ORDER BY 1",
        [str(xid & MASK) for xid in written],
    )

    assert [row["xid"] for row in rows] == written
