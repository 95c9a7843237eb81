# ruff: noqa: ASYNC240 - a test's own small files

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import orjson
import pytest

from cdc.errors import CdcError, OperatorNeeded, RequirementMissing, SinkUnavailable
from cdc.finding import Status
from cdc.sinks import Kept
from cdc.sinks.jsonl_positions import NoPositions, SidecarPositions
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"")
    return path


@pytest.fixture
def sidecar(events: Path) -> Path:
    return events.with_name("events.jsonl.position")


def kept(number: int, *, term: int = 1, name: str = "shop") -> Kept:
    return Kept(name, term, orjson.dumps({"number": number}))


async def test_what_is_written_is_read_by_the_next_process(
    events: Path, sidecar: Path
) -> None:
    async with SidecarPositions(str(events)) as store:
        assert await store.read("shop") is None
        await store.write(kept(1, term=2))
        await store.write(kept(2, term=2))
        await store.write(kept(3, name='"größe" #1'))

    async with SidecarPositions(str(events)) as store:
        assert await store.read("shop") == kept(2, term=2)
        assert await store.read('"größe" #1') == kept(3, name='"größe" #1')
        assert await store.read("nobody") is None
    assert orjson.loads(sidecar.read_bytes())["shop"] == {
        "term": 2,
        "position": {"number": 2},
    }


async def test_numbers_as_large_as_a_system_identifier_survive(events: Path) -> None:
    document = b'{"system_id":18446744073709551615}'
    async with SidecarPositions(str(events)) as store:
        await store.write(Kept("shop", 1, document))
        assert await store.read("shop") == Kept("shop", 1, document)


async def test_an_older_term_moves_nothing(events: Path) -> None:
    async with SidecarPositions(str(events)) as store:
        await store.write(kept(50, term=5))

        await SidecarPositions(str(events)).write(kept(40, term=4))

        assert await store.read("shop") == kept(50, term=5)


async def test_the_disk_has_the_file_and_its_name_before_a_write_returns(
    events: Path, sidecar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, sidecar.exists()))

    monkeypatch.setattr(os, "fsync", watched)

    await SidecarPositions(str(events)).write(kept(1))

    assert synced == [
        (sidecar.stat().st_ino, False),
        (events.parent.stat().st_ino, True),
    ]


async def test_a_write_that_fails_leaves_the_old_position_whole(
    events: Path, sidecar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SidecarPositions(str(events))
    await store.write(kept(1))
    before = sidecar.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SinkUnavailable, match=r"events\.jsonl\.position.*No space"):
        await store.write(kept(2))
    assert sidecar.read_bytes() == before
    monkeypatch.undo()

    await store.write(kept(3))

    assert await store.read("shop") == kept(3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"shop": 1}',
        b'{"shop": {"term": 1}}',
        b'{"shop": {"term": "1", "position": {}}}',
        b'{"shop": {"term": 1, "position": null}}',
        b"\xff",
    ],
)
async def test_a_file_that_holds_something_else_is_no_first_start(
    events: Path, sidecar: Path, content: bytes
) -> None:
    """Neither read over nor written over."""
    sidecar.write_bytes(content)
    store = SidecarPositions(str(events))

    for asked in (store.read("shop"), store.write(kept(1))):
        with pytest.raises(OperatorNeeded, match=r"events\.jsonl\.position"):
            await asked

    assert sidecar.read_bytes() == content
    (found,) = await store.check()
    assert found.status is Status.FAILURE
    assert found.remedy


@pytest.mark.parametrize(
    ("error", "raised"), [(13, RequirementMissing), (5, SinkUnavailable)]
)
async def test_a_file_that_cannot_be_opened_is_no_first_start(
    events: Path,
    sidecar: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    raised: type[CdcError],
) -> None:
    def refused(_path: Path) -> bytes:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(type(sidecar), "read_bytes", refused)

    with pytest.raises(raised, match=os.strerror(error)):
        await SidecarPositions(str(events)).read("shop")


async def test_positions_are_as_private_as_the_events(
    events: Path, sidecar: Path
) -> None:
    events.chmod(0o640)
    await SidecarPositions(str(events)).write(kept(1))
    assert sidecar.stat().st_mode & 0o777 == 0o640

    events.unlink()
    await SidecarPositions(str(events)).write(kept(2))
    assert sidecar.stat().st_mode & 0o777 == 0o600


async def test_check_tells_whether_positions_could_be_kept_and_writes_nothing(
    events: Path, sidecar: Path, tmp_path: Path
) -> None:
    (good,) = await SidecarPositions(str(events)).check()
    (bad,) = await SidecarPositions(str(tmp_path / "no" / "such.jsonl")).check()

    assert (good.status, bad.status) == (Status.OK, Status.FAILURE)
    assert not sidecar.exists()
    assert await SidecarPositions(str(events)).make() == []


async def test_a_write_that_was_given_up_never_replaces_a_later_one(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be cancelled: leaving waits for it, and so does a write."""
    syncing, go_on = threading.Event(), threading.Event()
    sync = os.fsync

    def slow_at_first(descriptor: int) -> None:
        if not syncing.is_set():
            syncing.set()
            go_on.wait(10)
        sync(descriptor)

    store = SidecarPositions(str(events))
    monkeypatch.setattr(os, "fsync", slow_at_first)
    writing = asyncio.create_task(store.write(kept(1)))
    await eventually(syncing.is_set, what="the disk is asked")

    writing.cancel()
    await asyncio.wait([writing])
    leaving = asyncio.create_task(store.__aexit__(None, None, None))
    later = asyncio.create_task(store.write(kept(2)))
    done, _ = await asyncio.wait([leaving, later], timeout=0.2)
    assert not done
    go_on.set()
    await asyncio.gather(leaving, later)

    assert writing.cancelled()
    assert await store.read("shop") == kept(2)


async def test_stdout_keeps_no_position_and_says_so() -> None:
    async with NoPositions() as store:
        await store.write(kept(1))
        assert await store.read("shop") is None
        (found,) = await store.check()
        assert found.status is Status.WARNING
        assert "stdout" in found.detail
        assert await store.make() == []
