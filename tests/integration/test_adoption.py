"""`cdc adopt`: one command, typed by somebody, for each thing the relay stops for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slots.lsn import Lsn
from tests.file_relay import OPERATOR, FileRelay, accepted_gap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source


@pytest.fixture
async def shop(source: Source, tmp_path: Path) -> FileRelay:
    """A relay that has carried three events and was stopped in order."""
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    return shop


async def wal_end(shop: FileRelay) -> Lsn:
    return Lsn.parse(await shop.source.value("SELECT pg_current_wal_lsn()::text"))


async def adopted(shop: FileRelay, *arguments: str) -> str:
    """Adopt, and return what was said to be done."""
    code, out, err = await shop.cdc("adopt", *arguments)
    assert code == 0, err
    assert err == ""
    return out


async def refused(shop: FileRelay, *arguments: str, code: int = OPERATOR) -> str:
    """Try to adopt, and return why it is not done; nothing has changed."""
    position, slot = shop.position(), await shop.source.slot_at_rest()
    got, out, err = await shop.cdc("adopt", *arguments)
    assert (got, out) == (code, ""), err
    assert len(err.splitlines()) == 1
    assert shop.position() == position
    assert await shop.source.slot_row() == slot
    return err


async def carries(shop: FileRelay, *ids: str) -> None:
    """The relay streams again, brings these, and is stopped in order."""
    async with shop.process() as relay:
        await relay.streaming()
        await shop.has(*ids, await shop.source.insert_event(key="fresh"))
        assert await relay.stop() == 0
    assert len(shop.ids()) == len(set(shop.ids()))


async def test_a_slot_that_was_moved_goes_on_where_it_is(shop: FileRelay) -> None:
    """With the position that the message names, and with no other."""
    stored = shop.position()
    skipped = await shop.source.insert_event(key="skipped")
    await shop.source.advance_slot()
    behind = await shop.source.insert_event(key="behind")
    gap = accepted_gap(await shop.refuses())
    assert f"cdc adopt --accept-gap {gap}" in await refused(
        shop, "--accept-gap", str(stored.end_lsn)
    )

    out = await adopted(shop, "--accept-gap", gap)

    assert f"slot {shop.source.slot} goes on at {gap}" in out
    assert f"behind {stored.end_lsn} and before {gap} is given up" in out
    now = shop.position()
    assert (now.end_lsn, now.epoch) == (Lsn.parse(gap), 0)
    assert now.term == stored.term + 1
    await carries(shop, behind)
    assert skipped not in shop.ids()


async def test_a_slot_that_is_gone_is_made_anew(shop: FileRelay) -> None:
    """Streaming goes on with what commits after that."""
    stored = shop.position()
    await shop.source.drop_slot()
    given_up = await shop.source.insert_event(key="given up")
    gap = accepted_gap(await shop.refuses("slot_lost"))
    assert gap == str(stored.end_lsn)
    wrong = str(Lsn(stored.end_lsn + 8))
    assert f"cdc adopt --accept-gap {gap}" in await refused(shop, "--accept-gap", wrong)
    assert await shop.source.slot_row() is None

    out = await adopted(shop, "--accept-gap", gap)

    begins = await shop.slot_at()
    assert f"slot {shop.source.slot} made anew, it begins at {begins}" in out
    row = await shop.source.slot_row()
    assert row is not None
    assert row["plugin"] == shop.source.plugin
    if int(shop.source.version) >= 17:
        assert row["failover"]
    await carries(shop)
    assert given_up not in shop.ids()


async def test_a_position_ahead_of_the_slot_gives_up_what_commits_before_it(
    shop: FileRelay,
) -> None:
    """Even where server and position agree: it takes a transaction out of the way."""
    given_up = await shop.source.insert_event(key="given up")
    here = await wal_end(shop)
    kept = await shop.source.insert_event(key="kept")

    await adopted(shop, "--accept-gap", str(here))

    assert await shop.slot_at() == here
    await carries(shop, kept)
    assert given_up not in shop.ids()


async def test_a_position_that_is_not_written_yet_is_refused(shop: FileRelay) -> None:
    """A server takes any, and then skips what is committed before it."""
    beyond = str(Lsn(await wal_end(shop) + (1 << 30)))
    err = await refused(shop, "--accept-gap", beyond)
    assert f"{beyond} is beyond the end of the WAL" in err


async def test_what_is_no_position_is_refused(shop: FileRelay) -> None:
    err = await refused(shop, "--accept-gap", "yesterday", code=2)
    assert "--accept-gap: " in err
    assert "the relay's message names the position" in err


async def test_nothing_is_adopted_where_nothing_is_wrong(shop: FileRelay) -> None:
    err = await refused(shop)
    assert f"agree ({shop.position().end_lsn}): nothing to adopt" in err


async def test_a_gap_on_the_same_history_begins_no_epoch(shop: FileRelay) -> None:
    """Without the option it says what is wrong, and which command it asks for."""
    await shop.source.drop_slot()
    err = await refused(shop)
    assert f"cdc adopt --accept-gap {shop.position().end_lsn}" in err


async def test_a_relay_without_a_position_has_nothing_to_adopt(
    source: Source, tmp_path: Path
) -> None:
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    for arguments in ([], ["--accept-gap", "0/1"]):
        code, out, err = await shop.cdc("adopt", *arguments)
        assert (code, out) == (3, "")
        assert "no position is stored for relay shop: there is nothing to adopt" in err
    assert not shop.sidecar.exists()


async def test_a_running_relay_is_left_alone(shop: FileRelay) -> None:
    """It holds the lock of its name; the command says which process that is."""
    async with shop.process() as relay:
        await relay.streaming()
        row = await shop.source.slot_row()
        assert row is not None
        before = await wal_end(shop)

        code, out, err = await shop.cdc("adopt", "--accept-gap", str(before))

        assert (code, out) == (6, ""), err
        assert f"relay shop runs already: pid {row['active_pid']} (walferry shop" in err
        await shop.has(await shop.source.insert_event())
        assert await relay.stop() == 0


@pytest.fixture
async def elsewhere(
    source_of: Callable[..., Awaitable[Source]], shop: FileRelay
) -> FileRelay:
    """The same relay on another cluster, with an outbox of its own."""
    there = {"15": "18", "18": "15"}[shop.source.version]
    plugin = "pgoutput" if there == "18" else shop.source.plugin
    source = await source_of(there, plugin)
    await source.create_outbox()
    return FileRelay(source=source, path=shop.path)


async def test_another_cluster_under_the_same_name_begins_an_epoch(
    shop: FileRelay, elsewhere: FileRelay
) -> None:
    """Nothing is published before it is adopted; then positions still only grow."""
    stored = shop.position()
    before = await elsewhere.source.insert_event(key="before")
    stderr = await elsewhere.refuses()
    assert f"left cluster {stored.system_id} at {stored.end_lsn}" in stderr
    assert "CDC_NAME=..." in stderr
    # Positions of two clusters have nothing to do with each other: no gap between them.
    err = await refused(elsewhere, "--accept-gap", str(stored.end_lsn))
    assert "  cdc adopt\n" in stderr
    assert "cdc adopt" in err

    out = await adopted(elsewhere)

    assert f"epoch 0 ended at {stored.end_lsn} on cluster {stored.system_id}" in out
    now = elsewhere.position()
    assert f"epoch 1 begins at {now.end_lsn} on cluster {now.system_id}" in out
    assert (now.epoch, now.anchor, now.horizon) == (1, None, None)
    assert now.system_id != stored.system_id
    await carries(elsewhere, before)
    positions = [dict(event["headers"])["cdc.position"] for event in shop.events()]
    assert [position[:4] for position in positions] == ["0000"] * 3 + ["0001"] * 2
    assert positions == sorted(positions)
    # The first cluster is now the other one.
    assert "left cluster" in await shop.refuses()


async def test_another_cluster_without_the_slot_is_not_adopted(
    elsewhere: FileRelay,
) -> None:
    """Where its epoch begins is for somebody to say, by making the slot."""
    await elsewhere.source.drop_slot()
    err = await refused(elsewhere, code=3)
    assert f"slots create {elsewhere.source.slot}" in err


async def test_an_automatic_answer_is_counted_anew_after_it(shop: FileRelay) -> None:
    """What has been recovered from by itself once may be so again."""
    await shop.source.drop_slot()
    out = await adopted(shop, "--accept-gap", str(shop.position().end_lsn))
    assert "made anew" in out
    assert shop.position().recovered == ()
    await shop.run_once()


@pytest.mark.parametrize("major", ["15", "18"])
async def test_a_gap_given_up_survives_a_crash_of_the_server(
    source_of: Callable[..., Awaitable[Source]],
    private_postgres: Callable[..., LocalPostgres],
    tmp_path: Path,
    major: str,
) -> None:
    """The slot is taken back by a crash: what was given up comes by, and is dropped."""
    source = await source_of(major, "pgoutput", server=private_postgres(major))
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    given = await source.insert_event(key="given up")
    await adopted(shop, "--accept-gap", str(await wal_end(shop)))
    await source.disconnect()
    await asyncio.to_thread(source.server.restart, "immediate")

    async with shop.process(with_http=False) as relay:
        await relay.logged(event="state", state="streaming")
        await shop.has(await source.insert_event(key="after"))
        assert await relay.stop() == 0
    assert given not in shop.ids()
