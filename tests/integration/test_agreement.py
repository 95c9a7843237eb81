"""At each start the server is held against what is stored, before anything is read.

Every case is one of those in which a slot goes on without a word, and rows are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.file_relay import FileRelay, accepted_gap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.postgres_source import Source


@pytest.fixture
async def shop(source: Source, tmp_path: Path) -> FileRelay:
    """A relay that has carried three events and was stopped in order."""
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    return shop


@pytest.fixture
async def newest(
    source_of: Callable[..., Awaitable[Source]], tmp_path: Path
) -> FileRelay:
    """The same, of one server and plugin only."""
    source = await source_of()
    await source.create_outbox()
    shop = FileRelay(source=source, path=tmp_path / "events")
    await shop.run_once()
    return shop


async def read_some(source: Source) -> int:
    """Read from the slot as another consumer would; return how much came."""
    options = {
        "pgoutput": "'proto_version', '1', 'publication_names', 'walferry'",
        "wal2json": "'format-version', '2'",
    }[source.plugin]
    await source.slot_at_rest()
    return int(
        await source.value(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes"
            f"(%s, NULL, NULL, {options})",
            source.slot,
        )
    )


async def test_a_slot_that_was_dropped_and_made_again_is_not_taken_for_ours(
    shop: FileRelay,
) -> None:
    stored = shop.position().end_lsn
    await shop.source.drop_slot()
    await shop.source.insert_event(key="missed")
    await shop.source.create_slot()
    await shop.source.insert_event(key="behind")

    stderr = await shop.refuses()

    made_at = await shop.slot_at()
    assert made_at > stored
    assert f"stands at {made_at}, beyond {stored}" in stderr
    assert f"what committed between {stored} and {made_at}" in stderr
    assert accepted_gap(stderr) == str(made_at)
    assert "cdc resnapshot" in stderr


async def test_a_slot_that_somebody_advanced_is_noticed(shop: FileRelay) -> None:
    stored = shop.position().end_lsn
    await shop.source.insert_event(key="skipped")
    await shop.source.advance_slot()

    stderr = await shop.refuses()

    assert f"beyond {stored}" in stderr
    assert accepted_gap(stderr) == str(await shop.slot_at())


async def test_a_slot_that_somebody_read_from_is_noticed(shop: FileRelay) -> None:
    stored = shop.position().end_lsn
    await shop.source.insert_event(key="read by another")
    assert await read_some(shop.source) > 0

    stderr = await shop.refuses()

    assert f"beyond {stored}" in stderr
    assert "read by somebody else" in stderr
