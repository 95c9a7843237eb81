"""Resnapshot: what was missed is brought back, and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cdc.errors import OperatorNeeded, RequirementMissing, SinkUncertain
from cdc.outbox import Columns, TableName
from cdc.position import parse
from cdc.resnapshot import Request, Resnapshot
from cdc.testing import FaultScript, MemoryPositions, MemorySink
from slots.errors import SlotBusy, SlotNotReady
from tests.in_process import relay_source, running
from tests.postgres_source import connect
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from cdc.outbox import Event
    from cdc.position import Position
    from cdc.session import Source as RelaySource
    from tests.postgres_source import Source


@pytest.fixture
async def outbox(source: Source) -> Source:
    await source.create_outbox()
    return source


def resnapshot_of(
    source: RelaySource, sink: MemorySink, store: MemoryPositions, **request: Any
) -> Resnapshot:
    asked: dict[str, Any] = {"bounds": {}, "may_drop": True} | request
    return Resnapshot(
        source,
        sink,
        store,
        sink,
        request=Request(**asked),
        told=lambda _progress: None,
    )


def stored(store: MemoryPositions) -> Position:
    (kept,) = store.kept.values()
    return parse(kept.document)


async def streamed(
    source: Source, relay: RelaySource, sink: MemorySink, store: MemoryPositions
) -> None:
    """Run the relay until it has delivered everything and sampled transactions."""

    async def has_horizon() -> bool:
        # It moves with an event behind a sample.
        await source.insert_event(key="on its way")
        return stored(store).horizon is not None

    async with running(relay, sink, store=store):
        await eventually(has_horizon, 20.0, what="a horizon")
        await sink.wait_for(await count(source))


async def count(source: Source) -> int:
    return int(await source.value("SELECT count(*) FROM outbox"))


async def ids(source: Source) -> list[str]:
    return [str(row["id"]) for row in await source.fetch("SELECT id FROM outbox")]


def replayed(events: list[Event]) -> list[Event]:
    return [event for event in events if "cdc.replay" in dict(event.headers)]


async def test_what_was_committed_without_a_slot_is_published_once(
    outbox: Source,
) -> None:
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    for number in range(20):
        await outbox.insert_event(key=f"before-{number}")
    await streamed(outbox, relay, sink, store)
    before = len(sink.events)
    await outbox.drop_slot()
    for number in range(10):
        await outbox.insert_event(key=f"missed-{number}")

    made = resnapshot_of(relay, sink, store)
    await made.run()

    assert made.report is not None
    assert made.report.progress.published == 10
    assert [event.key for event in replayed(sink.events)] == [
        f"missed-{number}".encode() for number in range(10)
    ]
    assert len(sink.events) == before + 10
    async with running(relay, sink, store=store):
        await outbox.insert_event(key="after")
        await sink.wait_for(before + 11)
    assert sorted(event.event_id for event in sink.events) == sorted(await ids(outbox))


async def test_a_dry_run_counts_and_changes_nothing(outbox: Source) -> None:
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    await outbox.insert_event()
    await streamed(outbox, relay, sink, store)
    await outbox.drop_slot()
    await outbox.insert_event(key="missed")
    before, written = list(sink.events), len(store.written)

    made = resnapshot_of(relay, sink, store, dry_run=True)
    await made.run()

    assert made.report is not None
    assert made.report.progress.published == 1
    assert sink.events == before
    assert len(store.written) == written
    assert await outbox.slot_row() is None


async def test_a_slot_that_is_there_is_dropped_only_when_told(outbox: Source) -> None:
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    await outbox.insert_event()
    await streamed(outbox, relay, sink, store)
    row = await outbox.slot_at_rest()

    for _ in range(2):  # a refusal is no word
        with pytest.raises(OperatorNeeded) as refused:
            await resnapshot_of(relay, sink, store, may_drop=False).run()
        assert "--yes" in refused.value.hint

    assert await outbox.slot_row() == row


async def test_it_refuses_while_a_relay_streams(
    outbox: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.resnapshot.LOCK_PATIENCE_S", 0.3)
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    async with running(relay, sink, store=store):
        with pytest.raises(SlotBusy, match="runs already: pid"):
            await resnapshot_of(relay, sink, store).run()
    assert await outbox.slot_row() is not None


async def test_a_crash_in_the_middle_is_gone_on_with(outbox: Source) -> None:
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    await outbox.insert_event()
    await streamed(outbox, relay, sink, store)
    await outbox.drop_slot()
    for number in range(5):
        await outbox.insert_event(key=f"missed-{number}")
    broken = MemorySink(FaultScript(lose_answer={0: SinkUncertain("no answer")}))
    broken.events = list(sink.events)
    with pytest.raises(SinkUncertain):
        await resnapshot_of(relay, broken, store).run()
    assert stored(store).unfinished is not None

    # The slot of the first attempt is ours: it is dropped without being told to.
    again = resnapshot_of(relay, broken, store, may_drop=False)
    await again.run()

    assert again.report is not None
    assert again.report.progress.published == 0  # the lost answer was of a delivery
    assert stored(store).unfinished is None
    counts = [event.event_id for event in broken.events]
    assert sorted(counts) == sorted(await ids(outbox))


async def test_without_a_stored_position_bounds_have_to_be_given(
    outbox: Source,
) -> None:
    await outbox.drop_slot()
    await outbox.insert_event()
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    with pytest.raises(RequirementMissing) as refused:
        await resnapshot_of(relay, sink, store).run()
    assert "--since" in refused.value.hint

    await resnapshot_of(relay, sink, store, bounds={"all": ""}).run()

    assert [event.event_id for event in sink.events] == await ids(outbox)


async def test_rows_of_a_savepoint_of_an_open_transaction_are_not_lost(
    outbox: Source,
) -> None:
    """A row's own xid lies above the horizon although its transaction began before."""
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    insert = (
        "INSERT INTO outbox (aggregatetype, aggregateid, type)"
        " VALUES ('order', 'held', 't') RETURNING id"
    )
    async with await connect(outbox.dsn) as held, held.transaction():
        await held.execute("SELECT pg_current_xact_id()")
        async with held.transaction():
            cursor = await held.execute(insert)
            row = await cursor.fetchone()
        for number in range(3):
            await outbox.insert_event(key=f"{number}")
        await streamed(outbox, relay, sink, store)
        # The slot is gone before the transaction commits.
        await outbox.drop_slot()
    assert row is not None

    await resnapshot_of(relay, sink, store).run()

    assert str(row["id"]) in {event.event_id for event in sink.events}
    assert sorted(event.event_id for event in sink.events) == sorted(await ids(outbox))


async def test_open_transactions_that_hold_the_slot_up_are_named(
    outbox: Source,
) -> None:
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    await outbox.insert_event()
    await streamed(outbox, relay, sink, store)
    await outbox.drop_slot()
    async with await connect(outbox.dsn) as held, held.transaction():
        await held.execute("SELECT pg_current_xact_id()")
        with pytest.raises(SlotNotReady) as late:
            await resnapshot_of(relay, sink, store, slot_timeout_s=1.0).run()
        pid = held.info.backend_pid
    assert str(pid) in late.value.hint
    assert await outbox.slot_row() is None

    await resnapshot_of(relay, sink, store).run()


async def test_snapshot_and_stream_meet_without_gap_or_overlap(
    outbox: Source,
) -> None:
    """Transactions of half a second, with savepoints, run through all of it."""
    relay = relay_source(outbox)
    sink, store = MemorySink(), MemoryPositions()
    await outbox.insert_event()
    await streamed(outbox, relay, sink, store)
    await outbox.drop_slot()
    stopping = asyncio.Event()

    async def write(number: int) -> None:
        async with await connect(outbox.dsn) as link:
            turn = 0
            while not stopping.is_set():
                turn += 1
                async with link.transaction():
                    await link.execute(INSERT, (f"{number}-{turn}-a",))
                    async with link.transaction():
                        await link.execute(INSERT, (f"{number}-{turn}-b",))
                    await link.execute("SELECT pg_sleep(%s)", (0.1 * (number % 5),))
                    await link.execute(INSERT, (f"{number}-{turn}-c",))

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(number)) for number in range(8)]
        before = await count(outbox)
        await eventually(lambda: grown(outbox, before + 50), 20.0)
        await resnapshot_of(relay, sink, store).run()
        async with running(relay, sink, store=store):
            more = await count(outbox)
            await eventually(lambda: grown(outbox, more + 50), 20.0)
            stopping.set()
            await asyncio.wait(writers)
            await sink.wait_for(await count(outbox))
    assert sorted(event.event_id for event in sink.events) == sorted(await ids(outbox))


INSERT = "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('o', %s, 't')"


async def grown(source: Source, size: int) -> bool:
    return await count(source) >= size


@pytest.mark.parametrize("version", ["15", "18"])
async def test_where_no_snapshot_can_be_exported_the_overlap_is_dropped(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    version: str,
) -> None:
    """More savepoints are open at once than the server takes into an exported one."""
    server = private_postgres(version, settings={"max_connections": "25"})
    source = await source_of(version, "pgoutput", server=server)
    await source.create_outbox()
    relay = relay_source(source)
    sink, store = MemorySink(), MemoryPositions()
    await streamed(source, relay, sink, store)
    await source.drop_slot()
    stopping = asyncio.Event()

    async def write(number: int) -> None:
        async with await connect(source.dsn) as link:
            turn = 0
            while not stopping.is_set():
                turn += 1
                async with link.transaction():
                    for step in range(60):
                        async with link.transaction():
                            await link.execute(INSERT, (f"{number}-{turn}-{step}",))
                    await link.execute("SELECT pg_sleep(%s)", (0.1 * (number % 4),))

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(number)) for number in range(8)]
        before = await count(source)
        await eventually(lambda: grown(source, before + 500), 30.0)
        for _ in range(10):  # at a lucky moment the server exports one after all
            await resnapshot_of(relay, sink, store).run()
            if stored(store).overlap is not None:
                break
        assert stored(store).overlap is not None, "the server always exported one"
        async with running(relay, sink, store=store):
            more = await count(source)
            await eventually(lambda: grown(source, more + 500), 30.0)
            stopping.set()
            await asyncio.wait(writers)
            await sink.wait_for(await count(source), limit_s=30.0)
            await eventually(lambda: stored(store).overlap is None, 10.0)
    assert sorted(event.event_id for event in sink.events) == sorted(await ids(source))


async def test_an_id_that_two_tables_may_have_says_nothing_of_a_row(
    source: Source,
) -> None:
    """The row that is missing has the id of one of another table that is there."""
    names = ("orders_outbox", "bills_outbox")
    for name in names:
        await source.execute(
            f"CREATE TABLE {name} (id bigserial PRIMARY KEY, aggregatetype text,"
            " aggregateid text, type text, payload jsonb)"
        )
    await source.execute(
        f"CREATE PUBLICATION {source.publication} FOR TABLE orders_outbox, bills_outbox"
    )
    await source.create_slot()
    tables = tuple(TableName("public", name) for name in names)
    relay = relay_source(source, tables=tables, columns=Columns())
    sink, store = MemorySink(), MemoryPositions()
    insert = (
        "INSERT INTO {} (aggregatetype, aggregateid, type) VALUES ('order', '{}', 't')"
    )
    async with running(relay, sink, store=store):
        await source.execute(insert.format("orders_outbox", "published"))
        await sink.wait_for(1)
    await source.drop_slot()
    await source.execute(insert.format("bills_outbox", "missed"))

    await resnapshot_of(relay, sink, store).run()

    assert b"missed" in [event.key for event in sink.events]
