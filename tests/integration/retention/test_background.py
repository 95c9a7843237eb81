"""Pruning beside a relay: bounded by acknowledgements, and never the relay's end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from cdc.retention import Pruning, Retention
from cdc.testing import FaultScript, MemorySink
from slots.connect import Target
from tests.in_process import relay_source, running
from tests.pruning import HOUR, INSERT, TABLES, certain, count
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.postgres_source import Source

AT_ONCE = Retention(keep_s=0.0001)


@asynccontextmanager
async def pruning(
    source: Source, retention: Retention, horizon: Callable[[], int | None]
) -> AsyncIterator[None]:
    """Prune all the time; fail when it ends."""
    pruner = Pruning(
        Target(dsn=SecretStr(source.dsn)),
        TABLES,
        retention,
        interval_s=0.05,
        horizon=horizon,
    )
    task = asyncio.create_task(pruner.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_waits_for_a_horizon_and_survives_a_failure(outbox: Source) -> None:
    """No horizon; then a table that is missing; then it is there again."""
    await outbox.execute(INSERT, "2 hours", 50)
    known: list[int | None] = [None]
    with capture_logs() as logs:
        async with pruning(outbox, HOUR, lambda: known[-1]):
            await outbox.execute("ALTER TABLE outbox RENAME TO away")
            assert logs == []
            known.append(await certain(outbox))
            await eventually(
                lambda: any(log["event"] == "prune_failed" for log in logs),
                what="the failure is told",
            )
            await outbox.execute("ALTER TABLE away RENAME TO outbox")

            async def is_empty() -> bool:
                return await count(outbox) == 0

            await eventually(is_empty, what="the rows are deleted")
            await eventually(
                lambda: any(log["event"] == "pruned" for log in logs),
                what="what was deleted is told",
            )
    (told,) = [log for log in logs if log["event"] == "pruned"]
    assert told["deleted"] == 50


async def test_what_hinders_it_is_told_once_while_it_lasts(plain: Source) -> None:
    await plain.execute("ALTER TABLE outbox ALTER created_at DROP NOT NULL")
    await plain.execute(INSERT, "2 hours", 1)
    await plain.execute("UPDATE outbox SET created_at = NULL")
    horizon = await certain(plain)
    rounds = []

    def asked() -> int:
        rounds.append(horizon)
        return horizon

    with capture_logs() as logs:
        async with pruning(plain, HOUR, asked):
            await eventually(lambda: len(rounds) > 3, what="three rounds")
    (told,) = [log for log in logs if log["event"] == "prune_hindered"]
    assert "no age" in told["reason"]


@pytest.mark.parametrize("major", ["15", "18"])
async def test_nothing_goes_that_the_broker_has_not_acknowledged(
    source_of: Callable[..., Awaitable[Source]], major: str
) -> None:
    """Acknowledgements come, are withheld for hundreds of rows, and come again."""
    source = await source_of(major, "pgoutput")
    await source.create_outbox()
    script = FaultScript()
    sink = MemorySink(script)
    inserted = set[str]()

    async def insert(key: str) -> None:
        inserted.add(await source.insert_event("order", key))

    async def all_but_later_ones_are_deleted() -> bool:
        # A horizon moves while the WAL does.
        await insert("later")
        query = "SELECT count(*) = 0 FROM outbox WHERE aggregateid <> 'later'"
        return bool(await source.value(query))

    async def much_is_withheld() -> bool:
        await insert("withheld")
        return len(inserted) > len(sink.events) + 300

    async with (
        running(relay_source(source), sink) as session,
        pruning(source, AT_ONCE, lambda: session.horizon),
    ):
        await insert("first")
        await eventually(all_but_later_ones_are_deleted, 20.0, what="it prunes")

        script.hold.update(range(100_000))
        # That takes longer than from one sample of the relay's to the next.
        await eventually(much_is_withheld, 30.0, what="much is withheld")
        there = {row["id"] for row in await source.fetch("SELECT id::text FROM outbox")}
        assert inserted - {event.event_id for event in sink.events} <= there

        script.hold.clear()
        sink.release()
        await eventually(all_but_later_ones_are_deleted, 20.0, what="it goes on")
        await sink.wait_for(len(inserted))
    assert {event.event_id for event in sink.events} == inserted


async def test_a_table_stays_small_under_a_writer(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    """What passes through it is several times what it grows to."""
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    await source.execute("CREATE INDEX ON outbox (created_at)")
    sink = MemorySink()
    written, largest = 0, 0
    async with (
        running(relay_source(source), sink) as session,
        pruning(source, AT_ONCE, lambda: session.horizon),
    ):

        async def is_through() -> bool:
            nonlocal written, largest
            await source.execute(INSERT, "0 s", 5)
            written += 5
            there = await count(source)
            largest = max(largest, there)
            # Emptied again and again, not only once.
            return written > 4 * largest and written >= 1000

        await eventually(
            is_through, 60.0, what="four times its largest size is written"
        )
        await sink.wait_for(written, limit_s=30.0)
