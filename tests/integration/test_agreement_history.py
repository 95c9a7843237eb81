"""A server that was put back, restored or exchanged is not taken for the one we left.

Its identifiers are the same ones and its WAL may end behind the stored position; it
would stream without a word, and what it has committed anew would be skipped.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slots.lsn import Lsn
from tests.file_relay import OPERATOR, FileRelay
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

FOREIGN_WAL = "SELECT pg_logical_emit_message(false, 'foreign', repeat('x', 100000))"


@pytest.fixture(params=[("15", "wal2json"), ("18", "pgoutput")], ids="-".join)
async def shop(
    request: pytest.FixtureRequest,
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> FileRelay:
    """A relay that has carried three events from a server that may be copied."""
    major, plugin = request.param
    source = await source_of(major, plugin, server=private_postgres(major))
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    return shop


@asynccontextmanager
async def put_back(copy: LocalPostgres, shop: FileRelay) -> AsyncIterator[FileRelay]:
    """Run a copy in the place of the server, which is down by now."""
    with copy:
        there = shop.on(copy)
        yield there
        await there.source.disconnect()


async def carried_on(shop: FileRelay) -> None:
    """Let the relay carry more events, behind a megabyte of foreign WAL."""
    for _ in range(10):
        await shop.source.fetch(FOREIGN_WAL)
    await shop.run_once(4)


async def copied(shop: FileRelay) -> LocalPostgres:
    """Copy the data folder, slot included, and let the server go on."""
    server = shop.source.server
    await shop.source.disconnect()
    server.stop()
    copy: LocalPostgres = server.cold_copy()
    server.start()
    return copy


async def written_past(there: FileRelay, position: Lsn) -> list[str]:
    """Commit events until the server's WAL ends behind a position."""
    ids: list[str] = []

    async def is_past() -> bool:
        ids.append(await there.source.insert_event(key="anew"))
        await there.source.fetch(FOREIGN_WAL)
        end = await there.source.value("SELECT pg_current_wal_lsn()::text")
        return Lsn.parse(end) > position

    await eventually(is_past, what="the WAL ends behind the stored position")
    return ids


async def doubts(there: FileRelay) -> str:
    """Start the relay: it has to stop with nothing published and nothing confirmed.

    Returns what it wrote to stderr.
    """
    events, end_lsn = there.events(), there.position().end_lsn
    slot_at = await there.slot_at()
    async with there.process(with_http=False) as relay:
        assert await relay.exited(30.0) == OPERATOR, relay.stderr
    assert there.events() == events
    assert there.position().end_lsn == end_lsn
    assert await there.slot_at() == slot_at
    assert "cdc resnapshot --since TIME (or --all)" in relay.stderr
    assert "unknown: positions of another history cannot be compared" in relay.stderr
    return relay.stderr


async def test_a_volume_that_was_put_back_and_written_on_publishes_nothing(
    shop: FileRelay,
) -> None:
    """Neither the last event delivered, nor anything in its place; said each time."""
    copy = await copied(shop)
    await shop.run_once(4)
    shop.source.server.stop()

    async with put_back(copy, shop) as there:
        await written_past(there, there.position().end_lsn)
        stderr = await doubts(there)
        assert "the last one delivered, does not end at" in stderr

        # What the stream has shown is remembered: it is said before any stream.
        assert "does not end at" in await there.refuses()


async def test_a_volume_that_was_put_back_and_hardly_used_publishes_nothing(
    shop: FileRelay,
) -> None:
    copy = await copied(shop)
    await carried_on(shop)
    shop.source.server.stop()

    async with put_back(copy, shop) as there:
        await there.source.insert_event(key="anew")
        stored = there.position().end_lsn
        stderr = await there.refuses()
        assert f"before {stored} where this relay is: it was restored" in stderr


async def test_events_in_the_place_of_foreign_wal_are_not_ours(shop: FileRelay) -> None:
    """The last event is the same; where we had none behind it, the copy has some."""
    copy = await copied(shop)
    async with shop.process() as relay:
        await relay.streaming()
        for _ in range(20):
            await shop.source.fetch(FOREIGN_WAL)
        end = Lsn.parse(await shop.source.value("SELECT pg_current_wal_lsn()::text"))

        async def has_followed() -> bool:
            await shop.source.fetch(FOREIGN_WAL)
            return shop.position().end_lsn >= end

        await eventually(has_followed, 20.0, what="the position follows foreign WAL")
        assert await relay.stop() == 0
    shop.source.server.stop()

    async with put_back(copy, shop) as there:
        await written_past(there, there.position().end_lsn)
        assert "that this relay has never had" in await doubts(there)


async def test_a_volume_put_back_that_has_had_no_event_since_loses_none(
    shop: FileRelay,
) -> None:
    """A copy of the moment at which the relay was stopped is the history it left."""
    copy = await copied(shop)
    shop.source.server.stop()

    async with put_back(copy, shop) as there:
        anew = await written_past(there, there.position().end_lsn)
        async with there.process() as relay:
            await relay.streaming()
            await there.has(*anew)
            assert await relay.stop() == 0
        assert len(there.ids()) == len(set(there.ids()))


async def test_a_restored_backup_has_lost_what_this_relay_knows(
    shop: FileRelay,
) -> None:
    """It has no slots and ends before the stored position: no slot loss like others."""
    backup = shop.source.server.base_backup()
    await carried_on(shop)
    shop.source.server.stop()

    async with put_back(backup, shop) as there:
        stored = there.position().end_lsn
        stderr = await there.refuses()
        assert f"before {stored} where this relay is: it was restored" in stderr
        await written_past(there, stored)
        assert "does not exist any more" in await there.refuses("slot_lost")
        assert await there.source.slot_row() is None


async def test_a_gap_is_not_accepted_on_a_restored_backup(shop: FileRelay) -> None:
    """A gap is on our own history; here the stored horizon would point anywhere."""
    backup = shop.source.server.base_backup()
    await shop.run_once(4)
    for _ in range(50):
        await shop.source.execute("SELECT pg_current_xact_id()")
    await shop.run_once(4)
    shop.source.server.stop()

    async with put_back(backup, shop) as there:
        stored = there.position()
        await written_past(there, stored.end_lsn)
        code, _out, err = await there.cdc("adopt", "--accept-gap", str(stored.end_lsn))
        assert code == OPERATOR, err
        assert "history is another one" in err
        assert await there.source.slot_row() is None
        assert there.position() == stored
