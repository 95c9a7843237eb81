"""JSON lines: one event a line, on stdout or in a file.

A line is ``{"id", "topic", "key", "value", "headers", "timestamp_ms"}``. Keys, values
and header values that are UTF-8 stand as text, anything else as ``{"base64": "..."}``:
a JSON string is always the text itself, an object always bytes. NULL is null. Headers
are a list of [name, value] pairs in order.

A delivery resolves when the lines are written (stdout) or fsynced (file). A file's torn
last line, left by a crash, is cut off when the file is opened: a part of a record is no
record, and its event was never acknowledged.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import fcntl
import os
import select
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from cdc.errors import CdcError, ExitCode, SettingsError, SinkUnavailable, SinkUncertain
from cdc.finding import Finding, failure, ok

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from cdc.outbox import Event, EventBatch
    from cdc.sinks import Delivery

STDOUT: Final = "-"
_PIECE: Final = 64 * 1024
_POLL_MS: Final = 100
_LEAVE_LIMIT_S: Final = 2.0
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class OutputClosed(CdcError):
    """Nobody reads our output any more."""

    kind = "output_closed"
    exit_code = ExitCode.UNACKNOWLEDGED
    hint = "start whatever reads it again; nothing is lost, the slot holds the events"


class JsonlSink:
    """Writes events as JSON lines.

    Args:
        path: of the file, or ``-`` for stdout.

    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._is_file = False
        self._is_torn = False
        self._leaving = threading.Event()
        self._writing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._leaving.clear()
        if self._path == STDOUT:
            self._descriptor = sys.stdout.fileno()
        else:
            self._descriptor = await asyncio.to_thread(_open, Path(self._path))
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leaving.set()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_LEAVE_LIMIT_S)
            if not self._writing.done():
                # A disk that hangs. Closed under a writing thread, the number might
                # be another file's when it goes on.
                return
            self._writing = None
        if self._path != STDOUT:
            os.close(self._descriptor)
        self._descriptor = -1

    async def publish(self, batch: EventBatch) -> Delivery:
        """Write a batch; it is durable when this returns."""
        lines = b"".join([_line(event) for event in batch.events])
        # Shielded: a thread cannot be cancelled, so whoever leaves waits for it.
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, lines))
        try:
            await asyncio.shield(self._writing)
        except OSError as exc:
            raise _named(exc, self._path) from exc
        delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        delivery.set_result(None)
        return delivery

    @property
    def troubles(self) -> Sequence[str]:
        """Nothing is ever waited for."""
        return ()

    async def check(self, constant_topics: Sequence[str]) -> list[Finding]:
        """Test whether the file could be written."""
        del constant_topics  # lines carry any topic
        if self._path == STDOUT:
            return [ok("jsonl.path", "events go to stdout")]
        return [await asyncio.to_thread(_check_path, Path(self._path))]

    def _write(self, lines: bytes) -> None:
        if self._is_torn:
            # Readers of a stream have seen a part already: let them see where it ends.
            lines = b"\n" + lines
        view = memoryview(lines)
        try:
            while view:
                piece = view if self._is_file else view[: self._room()]
                view = view[os.write(self._descriptor, piece) :]
        finally:
            written = len(lines) - len(view)
            if written:
                self._is_torn = not self._is_file and lines[written - 1] != ord("\n")
        if self._path != STDOUT and self._is_file:
            os.fdatasync(self._descriptor)

    def _room(self) -> int:
        """Wait until a pipe takes something; return how much it takes for sure."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while not poll.poll(_POLL_MS):
            if self._leaving.is_set():
                raise SinkUncertain(f"{self._path}: left while nobody was reading")
        return select.PIPE_BUF


def _line(event: Event) -> bytes:
    return orjson.dumps(
        {
            "id": event.event_id,
            "topic": event.topic,
            "key": _text(event.key),
            "value": _text(event.value),
            "headers": [[name, _text(value)] for name, value in event.headers],
            "timestamp_ms": event.timestamp_ms,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _check_path(path: Path) -> Finding:
    target = path if path.exists() else path.parent
    if os.access(target, os.W_OK) and not path.is_dir():
        return ok("jsonl.path", f"{path} can be written")
    return failure(
        "jsonl.path",
        f"{path} cannot be written",
        "make its folder, or set CDC_JSONL__PATH",
    )


def _open(path: Path) -> int:
    """Open for appending, cut off a torn last line, make a new name durable."""
    is_new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as exc:
        if exc.errno in _FULL:
            raise _named(exc, str(path)) from exc
        raise SettingsError(
            f"CDC_JSONL__PATH: {path} cannot be opened: {exc.strerror}",
            hint="make its folder, or allow this user to write there",
        ) from exc
    try:
        _prepare(descriptor, path, is_new=is_new)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _prepare(descriptor: int, path: Path, *, is_new: bool) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        # Two writers would cut off each other's last lines.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise SinkUnavailable(
            f"{path} is being written by another process",
            hint="stop the other relay, or set CDC_JSONL__PATH",
        ) from exc
    os.ftruncate(descriptor, _end_of_last_line(descriptor))
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _end_of_last_line(descriptor: int) -> int:
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _PIECE)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _named(exc: OSError, path: str) -> CdcError:
    if exc.errno == errno.EPIPE:
        return OutputClosed()
    return SinkUnavailable(
        f"{path} cannot be written: {exc.strerror}",
        hint="free space on its disk, or set CDC_JSONL__PATH",
    )
