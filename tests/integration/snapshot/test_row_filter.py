"""Rows that the stream never carries are not brought back from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.outbox import TableName
from cdc.snapshot import Bounds
from tests.in_process import relay_source
from tests.postgres_source import OUTBOX
from tests.snapshot_reading import keys, replayed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

PARTITIONED = (
    OUTBOX.replace("uuid PRIMARY KEY", "uuid").rstrip().rstrip(")")
    + ") PARTITION BY RANGE (created_at)"
)
FILTER = """payload @> '{"a%b": "{}"}' AND aggregatetype <> 'skip'"""
PAYLOAD = {"a%b": "{}"}


async def publish_filtered(source: Source, table: str) -> None:
    await source.execute(table)
    await source.execute(
        f"CREATE PUBLICATION {source.publication} FOR TABLE outbox WHERE ({FILTER})"
        " WITH (publish = 'insert', publish_via_partition_root = true)"
    )


async def insert_rows(source: Source) -> None:
    await source.insert_event("order", "kept", payload=PAYLOAD)
    await source.insert_event("skip", "left-out", payload=PAYLOAD)
    await source.insert_event("order", "other", payload={})


@pytest.mark.parametrize("major", ["15", "18"])
@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_the_publications_row_filter_holds(
    source_of: Callable[..., Awaitable[Source]], major: str, *, is_partitioned: bool
) -> None:
    source = await source_of(major, "pgoutput")
    await publish_filtered(source, PARTITIONED if is_partitioned else OUTBOX)
    if is_partitioned:
        await source.execute("CREATE TABLE public.all_rows PARTITION OF outbox DEFAULT")
    await insert_rows(source)

    assert keys(await replayed(relay_source(source))) == ["kept"]
    assert keys(await replayed(relay_source(source), Bounds(key="other"))) == []


async def test_wal2json_knows_no_publication_and_no_filter(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("15", "wal2json")
    await publish_filtered(source, OUTBOX)
    await insert_rows(source)

    events = await replayed(relay_source(source))

    assert keys(events) == ["kept", "left-out", "other"]


async def test_each_table_has_the_filter_of_its_own(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("18", "pgoutput")
    await publish_filtered(source, OUTBOX)
    await source.execute("CREATE TABLE public.second (LIKE outbox INCLUDING ALL)")
    await source.execute(
        f"ALTER PUBLICATION {source.publication} ADD TABLE second"
        " WHERE (lower(aggregatetype) = 'skip')"
    )
    await insert_rows(source)
    await source.execute("INSERT INTO second SELECT * FROM outbox")
    tables = (TableName("public", "second"), TableName("public", "outbox"))

    events = await replayed(relay_source(source, tables=tables))

    assert keys(events) == ["left-out", "kept"]
