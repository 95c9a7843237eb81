# ruff: noqa: ASYNC240 - a test's own small files

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from cdc.errors import SettingsError, SinkUnavailable, SinkUncertain
from cdc.finding import Status
from cdc.outbox import Event, EventBatch
from cdc.sinks.jsonl import JsonlSink, OutputClosed
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Header = tuple[str, bytes | None]


def event(
    value: bytes | None = b"{}",
    *,
    key: bytes | None = b"k",
    headers: list[Header] | None = None,
) -> Event:
    return Event("id-1", "orders", key, value, headers or [], 1700, key, 100)


def batch(*events: Event) -> EventBatch:
    return EventBatch(events=list(events), end_lsn=None, size_bytes=100)


def lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@contextlib.contextmanager
def as_stdout(descriptor: int) -> Iterator[None]:
    """Let a descriptor be what the process prints to."""
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False))
    try:
        yield
    finally:
        sys.stdout = before


async def test_a_line_holds_everything_and_text_stays_text(path: Path) -> None:
    value = '{"a": "é\\u0000 😀"}'.encode()
    given = event(value, headers=[("id", b"id-1"), ("none", None), ("id", b"again")])

    async with JsonlSink(str(path)) as sink:
        await (await sink.publish(batch(given)))

    assert lines(path) == [
        {
            "id": "id-1",
            "topic": "orders",
            "key": "k",
            "value": value.decode(),
            "headers": [["id", "id-1"], ["none", None], ["id", "again"]],
            "timestamp_ms": 1700,
        }
    ]


async def test_bytes_null_and_text_that_looks_like_bytes_stay_different(
    path: Path,
) -> None:
    raw = b"\xff\x00"
    encoded = base64.b64encode(raw).decode()
    values = [raw, None, b"", b"null", orjson.dumps({"base64": encoded})]

    async with JsonlSink(str(path)) as sink:
        await (await sink.publish(batch(*[event(value) for value in values])))

    assert [line["value"] for line in lines(path)] == [
        {"base64": encoded},
        None,
        "",
        "null",
        f'{{"base64":"{encoded}"}}',
    ]


async def test_a_delivery_is_promised_only_after_the_disk_has_the_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    sync = os.fdatasync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fdatasync", watched)

    async with JsonlSink(str(path)) as sink:
        await (await sink.publish(batch(event(), event())))
        assert synced == [path.read_bytes()]


@pytest.mark.parametrize("torn", [b"", b'{"id":"x', b"x" * 200_000])
async def test_a_torn_last_line_is_cut_off_and_whole_ones_stay(
    path: Path, torn: bytes
) -> None:
    path.write_bytes(b'{"id":"whole"}\n' + torn)

    async with JsonlSink(str(path)) as sink:
        await (await sink.publish(batch(event())))

    assert [line["id"] for line in lines(path)] == ["whole", "id-1"]


async def test_a_file_of_nothing_but_a_torn_line_begins_anew(path: Path) -> None:
    path.write_bytes(b"x" * 100_000)

    async with JsonlSink(str(path)):
        assert path.read_bytes() == b""


async def test_a_second_writer_waits_outside(path: Path) -> None:
    """It would cut off lines that the first is writing."""
    async with JsonlSink(str(path)):
        with pytest.raises(SinkUnavailable, match="another process"):
            await JsonlSink(str(path)).__aenter__()

    async with JsonlSink(str(path)) as sink:
        await (await sink.publish(batch(event())))


async def test_a_full_disk_is_retried_and_keeps_no_torn_line() -> None:
    sink = JsonlSink("/dev/full")

    async with sink:
        with pytest.raises(SinkUnavailable, match="No space left"):
            await sink.publish(batch(event()))


async def test_a_path_that_cannot_be_is_named_by_its_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="CDC_JSONL__PATH"):
        await JsonlSink(str(tmp_path / "no" / "such.jsonl")).__aenter__()


async def test_check_tells_whether_the_file_can_be_written(
    path: Path, tmp_path: Path
) -> None:
    (good,) = await JsonlSink(str(path)).check(["any topic"])
    (bad,) = await JsonlSink(str(tmp_path / "no" / "such.jsonl")).check([])
    (folder,) = await JsonlSink(str(tmp_path)).check([])
    (stdout,) = await JsonlSink("-").check([])

    assert [one.status for one in (good, bad, folder, stdout)] == [
        Status.OK,
        Status.FAILURE,
        Status.FAILURE,
        Status.OK,
    ]
    assert not path.exists()


async def test_stdout_is_written_at_once_and_left_open() -> None:
    reading, writing = os.pipe()
    try:
        with as_stdout(writing):
            async with JsonlSink("-") as sink:
                await (await sink.publish(batch(event(b"1"))))
                assert orjson.loads(os.read(reading, 65536))["value"] == "1"
        os.write(writing, b"still open")
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_reader_that_is_gone_ends_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with as_stdout(writing):
            async with JsonlSink("-") as sink:
                with pytest.raises(OutputClosed) as closed:
                    await sink.publish(batch(event()))
    finally:
        os.close(writing)
    assert not closed.value.retryable


async def test_a_reader_that_stalls_does_not_keep_us_from_leaving() -> None:
    """What it has seen of a line is ended before the next line begins."""
    reading, writing = os.pipe()
    try:
        with as_stdout(writing):
            sink = JsonlSink("-")
            await sink.__aenter__()
            publishing = asyncio.create_task(
                sink.publish(batch(event(b"x" * 1_000_000)))
            )
            await eventually(lambda: _is_full(writing), what="the pipe is full")
            began = time.monotonic()
            await sink.__aexit__(None, None, None)
            assert time.monotonic() - began < 1
            with pytest.raises(SinkUncertain):
                await publishing

            drained = os.read(reading, 1 << 20)
            async with sink:
                await (await sink.publish(batch(event(b"next"))))
            rest = os.read(reading, 1 << 20)
    finally:
        os.close(reading)
        os.close(writing)
    assert b"\n" not in drained
    assert rest.startswith(b"\n")
    assert orjson.loads(rest)["value"] == "next"


def _is_full(descriptor: int) -> bool:
    import select  # noqa: PLC0415 - for this check only

    return not select.select([], [descriptor], [], 0)[1]


async def test_a_cancelled_publish_is_finished_before_the_file_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be cancelled; the file must not be closed under it."""
    syncing, go_on, open_until_the_end = threading.Event(), threading.Event(), []

    def slow_sync(descriptor: int) -> None:
        syncing.set()
        go_on.wait(10)
        open_until_the_end.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    sink = JsonlSink(str(path))
    await sink.__aenter__()
    publishing = asyncio.create_task(sink.publish(batch(event())))
    await eventually(syncing.is_set, what="the disk is asked")

    publishing.cancel()
    leaving = asyncio.create_task(sink.__aexit__(None, None, None))
    await asyncio.wait([publishing])
    assert not leaving.done()
    go_on.set()
    await leaving

    assert publishing.cancelled()
    assert open_until_the_end == [path.stat().st_size]
