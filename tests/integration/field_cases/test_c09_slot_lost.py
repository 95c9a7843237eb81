"""Field case C09: a lost slot is said, and nothing is done until somebody decides."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from cdc.local import LocalPostgres
from tests.file_relay import FileRelay
from tests.relay_process import RelayProcess
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.postgres_source import Source

COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
# A megabyte a WAL file, and two of them kept for a slot.
SETTINGS = {
    "fsync": "off",
    "max_slot_wal_keep_size": "2MB",
    "max_wal_size": "4MB",
    "min_wal_size": "2MB",
}
FILL = (
    "SELECT count(pg_logical_emit_message(false, 'junk', repeat('x', 1000000)))"
    " FROM generate_series(1, 5)"
)


class TightServers:
    """Servers that keep next to no WAL for a slot, started when asked for."""

    def __init__(self) -> None:
        self._servers: dict[str, LocalPostgres] = {}

    def __getitem__(self, major: str) -> LocalPostgres:
        if major not in self._servers:
            server = LocalPostgres(major, settings=SETTINGS, wal_segment_mb=1)
            self._servers[major] = server.__enter__()
        return self._servers[major]

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


@pytest.fixture(scope="module")
def tight_servers() -> Iterator[TightServers]:
    servers = TightServers()
    yield servers
    servers.close()


@pytest.fixture(params=COMBINATIONS, ids="-".join)
async def shop(
    request: pytest.FixtureRequest,
    tight_servers: TightServers,
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> FileRelay:
    """A relay that has carried three events and was stopped in order."""
    major, plugin = request.param
    source = await source_of(major, plugin, server=tight_servers[major])
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    return shop


async def lose_slot(source: Source) -> None:
    """Write until the server has thrown away the WAL that the slot needs."""

    async def is_lost() -> bool:
        await source.fetch(FILL)
        await source.fetch("SELECT pg_switch_wal()")
        await source.execute("CHECKPOINT")
        row = await source.slot_row()
        assert row is not None
        return bool(row["wal_status"] == "lost")

    await eventually(is_lost, 30.0, what="the slot is lost")


def has_screen(text: str, shop: FileRelay) -> None:
    """It is one screen, from what happened to the commands."""
    position = shop.position()
    assert position.anchor is not None
    assert "walferry stopped: slot " in text
    assert f"last position   {position.end_lsn}, stored 20" in text
    assert (
        f"transaction {position.anchor.xid}, ends at {position.anchor.end_lsn}," in text
    )
    assert f"may be missing  what committed behind {position.end_lsn}" in text
    assert "WAL since then" in text
    assert "Nothing is published until you choose" in text
    assert "  cdc resnapshot\n" in text
    assert f"  cdc adopt --accept-gap {position.end_lsn}\n" in text


async def test_c09_a_slot_lost_by_the_wal_limit_stops_the_relay_at_once(
    shop: FileRelay,
) -> None:
    """Exit 4 after one attempt, with a screen; the lost slot stays as it is."""
    await shop.source.insert_event(key="missed")
    await lose_slot(shop.source)

    stderr = await shop.refuses("slot_lost")

    has_screen(stderr, shop)
    if int(shop.source.version) >= 17:
        assert "is lost (wal_removed)" in stderr
    assert "raise max_slot_wal_keep_size to at least" in stderr
    row = await shop.source.slot_row()
    assert row is not None
    assert row["wal_status"] == "lost"


async def test_c09_a_relay_with_an_endpoint_parks_and_says_so(shop: FileRelay) -> None:
    """Alive, not ready; state, reason and screen in /status, the state a metric."""
    await lose_slot(shop.source)
    before = shop.events()

    async with shop.process() as relay:
        line = await relay.logged(event="giving_up")
        assert line["kind"] == "slot_lost"
        assert (await relay.get("/livez"))[0] == 200
        code, body = await relay.get("/readyz")
        assert code == 503
        assert "slot_lost" in body
        status = await relay.status()
        assert status["state"] == "slot_lost"
        assert status["ready"] is False
        assert status["reason"] == f"slot_lost: {line['reason']}"
        has_screen("\n".join(status["screen"]) + "\n", shop)
        assert await relay.metric("walferry_state", state="slot_lost") == 1
        assert await relay.metric("walferry_state", state="streaming") == 0
        assert await relay.metric("walferry_events_published_total") == 0

        assert await relay.stop() == 4

    assert len([one for one in relay.log if one.get("event") == "giving_up"]) == 1
    assert "Traceback" not in relay.stderr
    assert shop.events() == before


async def test_c09_a_slot_that_is_lost_under_a_running_relay_parks_it(
    tight_servers: TightServers,
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> None:
    """The server cuts the connection as any restart would; the next look tells."""
    source = await source_of(server=tight_servers["18"])
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    async with shop.process() as relay:
        await relay.streaming()
        await shop.has(await source.insert_event())
        relay.signal(signal.SIGSTOP)
        await lose_slot(source)
        relay.signal(signal.SIGCONT)
        line = await relay.logged(30.0, event="giving_up")
        assert line["kind"] == "slot_lost"
        assert await relay.metric("walferry_state", state="slot_lost") == 1
        assert await relay.stop() == 4


async def test_c09_a_slot_dropped_meanwhile_is_a_loss_and_no_first_start(
    source: Source, tmp_path: Path
) -> None:
    """No slot is made, by nobody: neither by the relay nor by `cdc init`."""
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    await source.drop_slot()
    await source.insert_event(key="missed")

    stderr = await shop.refuses("slot_lost")

    has_screen(stderr, shop)
    assert f"slot {source.slot} does not exist any more" in stderr
    assert await source.slot_row() is None

    code, _out, err = await shop.cdc("init", "--yes")
    assert code == 4
    assert f"slot {source.slot} is gone" in err
    assert str(shop.position().end_lsn) in err
    assert await source.slot_row() is None


async def test_c09_a_parked_relay_goes_on_when_somebody_has_decided(
    source: Source, tmp_path: Path
) -> None:
    """Nobody has to restart it."""
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    await source.drop_slot()
    missed = await source.insert_event(key="missed")
    async with shop.process() as relay:
        await relay.logged(event="giving_up")
        gap = str(shop.position().end_lsn)

        code, out, err = await shop.cdc("adopt", "--accept-gap", gap)

        assert code == 0, err
        assert f"slot {source.slot} made anew" in out
        await relay.streaming()
        await shop.has(await source.insert_event(key="after"))
        assert (await relay.status())["screen"] == []
        assert await relay.stop() == 0
    assert missed not in shop.ids()


async def test_c09_a_first_start_without_a_slot_asks_for_one(
    source: Source, tmp_path: Path
) -> None:
    """A requirement that is not met, exit 3; nothing is made and nothing stored."""
    await source.create_outbox()
    await source.drop_slot()
    shop = FileRelay(source=source, path=tmp_path / "events")
    async with shop.process(with_http=False) as relay:
        assert await relay.exited() == 3
    assert f"slot {source.slot} does not exist" in relay.stderr
    assert "cdc init" in relay.stderr
    assert not shop.sidecar.exists()
    assert await source.slot_row() is None


async def test_c09_a_lost_slot_at_a_first_start_is_an_operators_matter(
    tight_servers: TightServers,
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> None:
    source = await source_of(server=tight_servers["18"])
    await source.create_outbox()
    await lose_slot(source)
    shop = FileRelay(source=source, path=tmp_path / "events")
    async with RelayProcess(shop.settings(), with_http=False) as relay:
        assert await relay.exited() == 4
    assert f"slot {source.slot} is lost" in relay.stderr
    assert not shop.sidecar.exists()


async def test_c09_a_slot_invalidated_for_idleness_is_a_lost_one(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> None:
    """A larger WAL limit would have been no help and is not advised."""
    server = private_postgres("18", settings={"idle_replication_slot_timeout": "1s"})
    source = await source_of(server=server)
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()

    async def is_invalidated() -> bool:
        await source.execute("CHECKPOINT")
        row = await source.slot_row()
        assert row is not None
        return bool(row["invalidation_reason"] == "idle_timeout")

    await eventually(is_invalidated, 20.0, what="the slot is idle for too long")

    stderr = await shop.refuses("slot_lost")

    has_screen(stderr, shop)
    assert "is lost (idle_timeout)" in stderr
    _log, _stopped, shown = stderr.partition("walferry stopped: ")
    assert "max_slot_wal_keep_size" not in shown
