# ruff: noqa: ASYNC240 - a test's own small files

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from cdc.errors import SinkUnavailable
from cdc.outbox import Event, EventBatch
from cdc.sinks.jsonl import JsonlSink
from cdc.sinks.jsonl_read_back import JsonlReadBack

if TYPE_CHECKING:
    from pathlib import Path


def event(event_id: str, topic: str = "orders", time_ms: int = 1000) -> Event:
    value = b"\xff\x00"  # stands as base64
    return Event(event_id, topic, b"k", value, [("id", b"x")], time_ms, b"k", 100)


async def publish(path: Path, *events: Event) -> None:
    async with JsonlSink(str(path)) as sink:
        batch = EventBatch(events=list(events), end_lsn=None, size_bytes=100)
        await (await sink.publish(batch))


async def held(path: Path, topic: str = "orders", *, since_ms: int = 0) -> list[str]:
    async with JsonlReadBack(str(path)) as read_back:
        pieces = read_back.ids(topic, since_ms=since_ms)
        return [event_id async for ids in pieces for event_id in ids]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


async def test_the_ids_of_one_topic_are_told_in_order(path: Path) -> None:
    await publish(path, event("ä\n1"), event("2", "other"), event("3"))

    assert await held(path) == ["ä\n1", "3"]
    assert await held(path, "other") == ["2"]
    assert await held(path, "nobody's") == []


async def test_every_event_of_a_time_or_later_is_among_them(path: Path) -> None:
    times = [1000, 3000, 2000, 2999, 3001]
    await publish(path, *[event(str(ms), time_ms=ms) for ms in times])

    assert await held(path, since_ms=3000) == ["3000", "3001"]
    assert len(await held(path)) == len(times)


async def test_a_file_that_is_not_there_holds_nothing(path: Path) -> None:
    assert await held(path) == []


async def test_a_file_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    """What cannot be seen would be published again."""
    with pytest.raises(SinkUnavailable, match=str(tmp_path)):
        await held(tmp_path)


async def test_a_pipe_holds_nothing_and_nobody_is_waited_for(path: Path) -> None:
    os.mkfifo(path)

    assert await held(path) == []


async def test_a_torn_last_line_is_no_event(path: Path) -> None:
    await publish(path, event("1"))
    line: dict[str, Any] = orjson.loads(path.read_bytes())
    whole = orjson.dumps(line | {"id": "2"})

    for torn in (whole[:40], whole[:-1], whole):
        with path.open("ab") as file:
            file.write(torn)
        assert await held(path) == ["1"]
        await publish(path)


async def test_what_is_told_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody writes it again, and the writer may have died before it was."""
    await publish(path, event("1"))
    synced: list[int] = []
    sync = os.fdatasync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fdatasync", watched)

    async with JsonlReadBack(str(path)) as read_back:
        async for ids in read_back.ids("orders", since_ms=0):
            assert ids == ["1"]
            assert synced == [path.stat().st_ino]


async def test_a_file_that_grows_meanwhile_is_read_to_where_it_ended(
    path: Path,
) -> None:
    """Else a reader that is no faster than the writer would never come to an end."""
    await publish(path, *[event("x" * 1000) for _ in range(3000)])

    pieces = 0
    async with JsonlReadBack(str(path)) as read_back:
        async for ids in read_back.ids("orders", since_ms=0):
            pieces += 1
            assert pieces < 10
            await publish(path, *[event("y" * 1000) for _ in ids])

    assert pieces > 1


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"1",
        b"{}",
        b"\xff",
        b"",
        b'{"topic":"orders"}',
        b'{"topic":"orders","timestamp_ms":1}',
        b'{"id":"x","topic":"orders"}',
        b'{"id":1,"topic":"orders","timestamp_ms":1}',
        b'{"id":"x","topic":"orders","timestamp_ms":null}',
    ],
)
async def test_a_line_that_is_no_event_of_ours_is_passed_over(
    path: Path, line: bytes
) -> None:
    await publish(path, event("1"))
    with path.open("ab") as file:
        file.write(line + b"\n")
    await publish(path, event("2"))

    assert await held(path) == ["1", "2"]


async def test_a_file_of_any_size_is_read_in_little_memory(path: Path) -> None:
    line = orjson.dumps(
        {"id": "x" * 36, "topic": "orders", "value": "v" * 600, "timestamp_ms": 5}
    )
    with path.open("wb") as file:
        file.write((line + b"\n") * 100_000)

    tracemalloc.start()
    count = 0
    async with JsonlReadBack(str(path)) as read_back:
        async for ids in read_back.ids("orders", since_ms=0):
            count += len(ids)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 100_000
    assert peak < 8 << 20
