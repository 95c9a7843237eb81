"""Rows come in the order of their commits, as far as the table still tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.snapshot import Bounds, parse_since
from tests.in_process import relay_source
from tests.postgres_source import connect
from tests.snapshot_reading import keys, replayed

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

    from tests.postgres_source import Source


async def insert(connection: AsyncConnection[DictRow], *names: str) -> None:
    for name in names:
        await connection.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES (%s, %s, %s)",
            ("order", name, "x"),
        )


async def write_interleaved(source: Source) -> None:
    """Two transactions: ``a`` begins first, has a savepoint, and commits last."""
    async with await connect(source.dsn) as first, await connect(source.dsn) as second:
        await first.execute("BEGIN")
        await insert(first, "a1")
        await second.execute("BEGIN")
        await insert(second, "b1")
        await first.execute("SAVEPOINT s")
        await insert(first, "a2")
        await first.execute("RELEASE SAVEPOINT s")
        await insert(first, "a3")
        await insert(second, "b2")
        await second.execute("COMMIT")
        await first.execute("COMMIT")
    await source.insert_event("order", "c1")


async def test_with_commit_timestamps_it_is_that_of_commits_then_of_statements(
    tracking: Source,
) -> None:
    await write_interleaved(tracking)

    events = await replayed(relay_source(tracking))

    assert keys(events) == ["b1", "b2", "a1", "a2", "a3", "c1"]


async def test_without_it_is_that_of_transaction_ids_then_of_statements(
    plain: Source,
) -> None:
    await write_interleaved(plain)

    events = await replayed(relay_source(plain))

    assert keys(events) == ["a1", "a3", "b1", "b2", "a2", "c1"]


async def test_a_row_that_was_moved_within_the_table_keeps_its_place(
    tracking: Source,
) -> None:
    """VACUUM FULL and FREEZE leave the transaction of each row known."""
    await write_interleaved(tracking)
    await tracking.execute("VACUUM (FULL, FREEZE) outbox")

    events = await replayed(relay_source(tracking))

    assert keys(events) == ["b1", "b2", "a1", "a2", "a3", "c1"]


async def test_since_an_event_is_that_event_and_all_behind_it(tracking: Source) -> None:
    await write_interleaved(tracking)
    relay = relay_source(tracking)
    ids = {
        row["aggregateid"]: str(row["id"])
        for row in await tracking.fetch("SELECT id, aggregateid FROM outbox")
    }

    async def between(since: str, until: str | None = None) -> list[str]:
        bounds = Bounds(
            since=parse_since(ids[since]),
            until=None if until is None else parse_since(ids[until].upper()),
        )
        return keys(await replayed(relay, bounds))

    assert await between("b1") == ["b1", "b2", "a1", "a2", "a3", "c1"]
    assert await between("a2") == ["a2", "a3", "c1"]
    assert await between("b2", "a2") == ["b2", "a1", "a2"]
    assert await between("c1", "b1") == []


async def test_since_an_event_without_commit_timestamps_follows_the_order_there_is(
    plain: Source,
) -> None:
    await write_interleaved(plain)
    event_id = await plain.value("SELECT id::text FROM outbox WHERE aggregateid = 'b2'")

    events = await replayed(
        relay_source(plain), Bounds(since=parse_since(str(event_id)))
    )

    assert keys(events) == ["b2", "a2", "c1"]
