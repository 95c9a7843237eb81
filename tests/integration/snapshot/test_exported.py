"""What a new slot's snapshot shows and what the slot sends are all rows, each once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cdc.snapshot import Bounds
from cdc.testing import MemorySink
from slots.catalog import create_slot_with_snapshot
from slots.connect import connect
from tests.in_process import relay_source, running
from tests.postgres_source import OUTBOX
from tests.postgres_source import connect as connect_as_writer
from tests.snapshot_reading import events_of, opened
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.postgres_source import Source

INSERT = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('order', %s, 'x')"
)


class Writer:
    """Transactions with savepoints, some rolled back, as fast as they go."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.committed = 0
        self.is_stopping = False

    async def run(self) -> None:
        async with await connect_as_writer(self._source.dsn) as connection:
            while not self.is_stopping:
                async with connection.transaction():
                    await connection.execute(INSERT, ("outer",))
                    async with connection.transaction(force_rollback=True):
                        await connection.execute(INSERT, ("lost",))
                    async with connection.transaction():
                        await connection.execute(INSERT, ("inner",))
                self.committed += 2

    async def has_written(self, count: int) -> None:
        wanted = self.committed + count
        await eventually(lambda: self.committed >= wanted, what="the writer goes on")


async def test_beside_a_writer_nothing_is_missing_and_nothing_comes_twice(
    source: Source,
) -> None:
    await source.execute(OUTBOX)
    await source.execute(
        f"CREATE PUBLICATION {source.publication} FOR TABLE outbox"
        " WITH (publish = 'insert')"
    )
    relay = relay_source(source)
    sink = MemorySink()
    writers = [Writer(source), Writer(source)]

    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run())
        await writers[0].has_written(100)
        async with (
            await connect(relay.target, replication=True) as line,
            await connect(relay.target) as connection,
        ):
            made = await create_slot_with_snapshot(
                line, connection, source.slot, plugin=source.plugin, timeout_s=20
            )
            async with opened(relay, made.snapshot_name) as snapshot:
                await writers[0].has_written(100)
                shown = await events_of(snapshot, relay, Bounds())
        for writer in writers:
            writer.is_stopping = True
    rows = await source.fetch("SELECT id::text FROM outbox")
    async with running(relay, sink):
        streamed = await sink.wait_for(len(rows) - len(shown))

    ids = [event.event_id for event in (*shown, *streamed)]
    assert len(shown) >= 100
    assert len(streamed) >= 100
    assert sorted(ids) == sorted(row["id"] for row in rows)
    assert len(ids) == len(set(ids))


async def test_an_exported_snapshot_knows_its_transactions(source: Source) -> None:
    """Its xmin is a horizon for the slot: what the slot sends lies above it."""
    await source.create_outbox()
    await source.drop_slot()
    relay = relay_source(source)
    for number in range(3):
        await source.insert_event("order", f"before-{number}")

    async with (
        await connect(relay.target, replication=True) as line,
        await connect(relay.target) as connection,
    ):
        made = await create_slot_with_snapshot(
            line, connection, source.slot, plugin=source.plugin, timeout_s=20
        )
        async with opened(relay, made.snapshot_name) as snapshot:
            xmin, xmax = snapshot.xmin, snapshot.xmax
            assert len(await events_of(snapshot, relay, Bounds())) == 3
            assert await events_of(snapshot, relay, Bounds(horizon=xmin)) == []
    await source.insert_event("order", "after")
    after = await source.value(
        "SELECT xmin::text::int8 FROM outbox WHERE aggregateid = 'after'"
    )

    assert xmin <= xmax <= after
