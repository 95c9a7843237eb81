"""Field cases B: transactions and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.testing import MemorySink
from tests.in_process import relay_source, running
from tests.postgres_source import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

EVENTS = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
    " SELECT 'o', 'k', 't', to_jsonb(n) FROM generate_series({}, {}) n"
)


async def test_b01_exactly_the_surviving_events_of_savepoints_in_order(
    source: Source,
) -> None:
    """Also when the transaction is larger than the server decodes in memory."""
    await source.create_outbox()
    sink = MemorySink()
    connection = await source.open()

    async with running(relay_source(source), sink):
        async with connection.transaction():
            await source.execute(EVENTS.format(1, 300))
            await source.execute("SAVEPOINT s")
            await source.execute(EVENTS.format(1001, 1100))
            await source.execute("ROLLBACK TO SAVEPOINT s")
            await source.execute(EVENTS.format(301, 600))
            await source.execute("SAVEPOINT t")
            await source.execute(EVENTS.format(601, 605))
            await source.execute("RELEASE SAVEPOINT t")
            xid = await source.value("SELECT pg_current_xact_id()::text::bigint")
            assert sink.events == []
        await source.insert_event("order", "next")
        events = await sink.wait_for(606)

    group, following = events[:605], events[605:]
    assert [event.value for event in group] == [b"%d" % n for n in range(1, 606)]
    assert {dict(event.headers)["cdc.xid"] for event in group} == {b"%d" % xid}
    positions = [dict(event.headers)["cdc.position"] or b"" for event in events]
    assert positions == sorted(set(positions))
    assert [event.key for event in following] == [b"next"]


async def test_b03_commit_order_decides_and_no_column_of_the_row(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD seq bigserial")
    sink = MemorySink()

    async with await connect(source.dsn) as first:
        await first.execute("BEGIN")
        await first.execute(EVENTS.format(1, 1).encode())
        async with running(relay_source(source), sink):
            await source.execute(EVENTS.format(2, 2))
            await sink.wait_for(1)
        # The walsender goes away between the two commits.
        async with running(relay_source(source), sink):
            await first.execute("COMMIT")
            events = await sink.wait_for(2)

    assert [event.value for event in events] == [b"2", b"1"]


async def test_b05_a_row_that_is_deleted_at_once_is_published(source: Source) -> None:
    await source.create_outbox()
    await source.execute("ALTER PUBLICATION walferry SET (publish = 'insert, delete')")
    sink = MemorySink()
    connection = await source.open()

    async with running(relay_source(source), sink):
        async with connection.transaction():
            await source.insert_event("order", "a", payload=1)
            await source.execute("DELETE FROM outbox WHERE aggregateid = 'a'")
            await source.insert_event("order", "a", payload=2)
            await source.execute("DELETE FROM outbox")
        await source.insert_event("order", "b")
        events = await sink.wait_for(3)

    assert [event.value for event in events] == [b"1", b"2", b"null"]


async def test_b05_kinds_of_inserts_and_of_upserts(source: Source) -> None:
    """COPY and multi-row inserts are events; what an upsert updates is not."""
    await source.create_outbox()
    sink = MemorySink()
    connection = await source.open()

    async with running(relay_source(source), sink):
        async with connection.cursor() as cursor:
            copy = "COPY outbox (id, aggregatetype, aggregateid, type) FROM STDIN"
            async with cursor.copy(copy.encode()) as rows:
                for number in range(1, 4):
                    uuid = f"00000000-0000-0000-0000-{number:012}"
                    await rows.write_row((uuid, "o", f"copied-{number}", "t"))
        await source.execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, type)"
            " VALUES ('00000000-0000-0000-0000-000000000001', 'o', 'again', 't'),"
            " ('00000000-0000-0000-0000-000000000009', 'o', 'new', 't')"
            " ON CONFLICT (id) DO UPDATE SET aggregateid = 'updated'"
        )
        await source.insert_event("order", "last")
        events = await sink.wait_for(5)

    assert [event.key for event in events] == [
        b"copied-1",
        b"copied-2",
        b"copied-3",
        b"new",
        b"last",
    ]


@pytest.mark.parametrize(
    ("major", "plugin"), [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
)
async def test_b05_a_prepared_transaction_arrives_when_it_is_committed(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    major: str,
    plugin: str,
) -> None:
    server = private_postgres(major, settings={"max_prepared_transactions": "2"})
    source = await source_of(major, plugin, server=server)
    await source.create_outbox()
    sink = MemorySink()

    async with running(relay_source(source), sink):
        await source.execute("BEGIN")
        await source.insert_event("order", "prepared")
        await source.execute("PREPARE TRANSACTION 'p'")
        await source.insert_event("order", "meanwhile")
        await sink.wait_for(1)
        await source.execute("COMMIT PREPARED 'p'")
        events = await sink.wait_for(2)

    assert [event.key for event in events] == [b"meanwhile", b"prepared"]
