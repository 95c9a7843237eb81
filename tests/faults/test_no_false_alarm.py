"""What a relay's own past does to slot and position is no reason to stop.

Servers before 17 forget where a slot was when they are restarted, a crash makes any of
them forget, and a killed relay has acknowledged more than it has stored.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from slots.lsn import Lsn
from tests.faults.load import Load
from tests.file_relay import FileRelay
from tests.relay_process import RelayProcess
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

pytestmark = [pytest.mark.faults, pytest.mark.postgres]

COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
FORGETS_BEFORE = 17
SEED = 1717
"""Of the moments at which relays are killed."""

_log = logging.getLogger(__name__)


@pytest.fixture(params=COMBINATIONS, ids="-".join)
async def shop(
    request: pytest.FixtureRequest,
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> FileRelay:
    """A server that may be restarted, and a file."""
    major, plugin = request.param
    source = await source_of(major, plugin, server=private_postgres(major))
    await source.create_outbox()
    return FileRelay(source=source, path=tmp_path / "events")


async def restart(shop: FileRelay, mode: str) -> None:
    await shop.source.disconnect()
    await asyncio.to_thread(shop.source.server.restart, mode)


def commit_of(event: dict[str, Any]) -> Lsn:
    """Return where the transaction of an event commits."""
    _epoch, commit_lsn, _index = dict(event["headers"])["cdc.position"].split("-")
    return Lsn(int(commit_lsn, 16))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_five_restarts_of_relay_and_server_repeat_nothing(
    shop: FileRelay, mode: str
) -> None:
    """What a server has forgotten comes again and is dropped, each event once."""
    ids = []
    forgotten = 0
    for _ in range(5):
        ids += await shop.run_once(2)
        stored = shop.position().end_lsn
        await restart(shop, mode)
        forgotten += await shop.slot_at() < stored
    ids += await shop.run_once(2)
    assert shop.ids() == ids
    _log.info("the slot was behind the position %d times of 5", forgotten)
    if int(shop.source.version) < FORGETS_BEFORE:
        assert forgotten


async def test_a_relay_that_lives_through_restarts_of_the_server_repeats_nothing(
    shop: FileRelay,
) -> None:
    async with shop.process() as relay:
        ids = []
        for mode in ("fast", "immediate", "fast"):
            await relay.streaming()
            ids.append(await shop.source.insert_event())
            await shop.has(*ids)
            # What is not stored yet may come again: that is no restart's doing.
            end = Lsn.parse(await shop.source.value("SELECT pg_current_wal_lsn()"))

            def is_stored(end: Lsn = end) -> bool:
                return shop.position().end_lsn >= end

            await eventually(is_stored, what="the position is stored")
            await restart(shop, mode)
        await relay.streaming()
        ids.append(await shop.source.insert_event())
        await shop.has(*ids)
        assert await relay.stop() == 0
    assert shop.ids() == ids


async def everything_arrives(shop: FileRelay, load: Load) -> None:
    """Every committed event is in the file, and none that was never committed."""
    await shop.has(*load.committed, deadline_s=60.0)
    assert set(shop.ids()) <= load.committed.keys() | load.uncertain


async def test_crashes_of_the_server_under_load_raise_no_alarm(shop: FileRelay) -> None:
    load = Load(shop.source.dsn)
    async with shop.process() as relay:
        async with load.running():
            for _ in range(3):
                await relay.streaming()
                await load.grown_by(300)
                await restart(shop, "immediate")
            await relay.streaming()
            await load.grown_by(300)
        await everything_arrives(shop, load)
        assert [one for one in relay.log if one.get("event") == "giving_up"] == []
        assert await relay.stop() == 0
    # It goes on from there, too.
    await shop.run_once()


async def killed_relays(shop: FileRelay, rounds: int) -> None:
    """Kill one relay after the other under load."""
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    load = Load(shop.source.dsn)
    repeats = 0
    before: list[str] = []
    stored = Lsn(0)
    async with load.running():
        for _ in range(rounds):
            async with RelayProcess(shop.settings()) as relay:
                await relay.streaming()
                await load.grown_by(chance.randint(100, 500))
                await relay.kill()
            repeats += repeats_behind(shop, before, stored)
            before, stored = shop.ids(), shop.position().end_lsn
        async with RelayProcess(shop.settings()) as relay:
            await relay.streaming()
            await load.grown_by(100)
            assert await relay.stop() == 0
        repeats += repeats_behind(shop, before, stored)
    async with RelayProcess(shop.settings()) as relay:
        await relay.streaming()
        await everything_arrives(shop, load)
        assert await relay.stop() == 0
    _log.info("%d events, %d repeats", len(load.committed), repeats)


def repeats_behind(shop: FileRelay, before: list[str], stored: Lsn) -> int:
    """Count what a run has repeated; it may only lie behind the stored position."""
    events = shop.events()
    assert [event["id"] for event in events[: len(before)]] == before
    known = set(before)
    repeated = [event for event in events[len(before) :] if event["id"] in known]
    assert all(commit_of(event) >= stored for event in repeated)
    return len(repeated)


async def test_a_killed_relay_repeats_only_what_was_not_stored_yet(
    shop: FileRelay,
) -> None:
    """And loses nothing, and needs nobody's word to go on."""
    await killed_relays(shop, rounds=4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_thirty_killed_relays_repeat_only_what_was_not_stored_yet(
    shop: FileRelay,
) -> None:
    await killed_relays(shop, rounds=30)
