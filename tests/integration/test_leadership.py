"""One relay of a name at a time, whatever slot it reads: the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.file_relay import FileRelay
from tests.relay_process import RelayProcess
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.postgres_source import Source


@pytest.fixture
async def shop(source: Source, tmp_path: Path) -> FileRelay:
    await source.create_outbox()
    return FileRelay(source=source, path=tmp_path / "events")


async def second_slot(shop: FileRelay) -> dict[str, str]:
    """Make another slot of the same beginning; return the setting that names it."""
    name = f"{shop.source.slot}_b"
    await shop.source.fetch(
        "SELECT pg_copy_logical_replication_slot(%s, %s)", shop.source.slot, name
    )
    return {"CDC_SLOT__NAME": name}


async def waits(relay: RelayProcess, holder: RelayProcess) -> None:
    """It says for whom, is alive and not ready, and publishes nothing."""
    line = await relay.logged(event="waiting")
    assert "relay shop runs already: pid " in line["reason"]
    assert "(walferry shop, " in line["reason"]
    assert (await relay.get("/livez"))[0] == 200
    assert (await relay.get("/readyz"))[0] == 503
    assert (await relay.status())["state"] == "waiting"
    assert await relay.metric("walferry_leader") == 0
    assert await holder.metric("walferry_leader") == 1


@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL"])
async def test_a_second_relay_of_a_name_waits_and_takes_over(
    shop: FileRelay, ending: str
) -> None:
    """With a slot of its own, which alone would let both publish the same events."""
    other = shop.settings(**await second_slot(shop))
    async with shop.process() as first:
        await first.streaming()
        before = [await shop.source.insert_event() for _ in range(5)]
        await shop.has(*before)
        async with RelayProcess(other) as second:
            await waits(second, first)
            during = await shop.source.insert_event()
            await shop.has(during)
            stored = shop.position().term

            if ending == "SIGTERM":
                assert await first.stop() == 0
            else:
                await first.kill()

            await second.streaming()
            after = await shop.source.insert_event()
            await shop.has(after)
            assert shop.position().term == stored + 1
            assert await second.metric("walferry_leader") == 1
            assert await second.stop() == 0
    ids = shop.ids()
    if ending == "SIGTERM":
        # What the first has delivered is in the other slot too, and is not sent again.
        assert ids == [*before, during, after]
    assert list(dict.fromkeys(ids)) == [*before, during, after]


async def test_relays_of_two_names_do_not_wait_for_each_other(
    source_of: Callable[..., Awaitable[Source]], tmp_path: Path
) -> None:
    source = await source_of()
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    other = await second_slot(shop)
    path = tmp_path / "others"
    archive = FileRelay(source=source, path=path, name="archive")
    async with shop.process() as first, RelayProcess(archive.settings(**other)) as last:
        await first.streaming()
        await last.streaming()
        event = await source.insert_event()
        await shop.has(event)
        await archive.has(event)
        assert await last.stop() == 0
        assert await first.stop() == 0


async def test_the_lock_goes_with_the_connection_of_its_holder(
    source_of: Callable[..., Awaitable[Source]], tmp_path: Path
) -> None:
    """Whoever was cut off has to take it again, and may find it taken."""
    source = await source_of()
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    other = shop.settings(**await second_slot(shop))
    async with shop.process() as first:
        await first.streaming()
        async with RelayProcess(other) as second:
            await waits(second, first)

            async def has_changed_hands() -> bool:
                await source.fetch(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE slot_name = %s AND active",
                    source.slot,
                )
                return (await second.get("/readyz"))[0] == 200

            await eventually(has_changed_hands, 30.0, what="the second one leads")
            await shop.has(await source.insert_event())
            await first.logged(event="waiting")
            assert await second.stop() == 0
        await first.streaming()
        await shop.has(await source.insert_event())
        assert await first.stop() == 0
    assert len(shop.ids()) == len(set(shop.ids())) == 2
