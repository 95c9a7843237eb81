"""Positions beside a file of events, in a file of their own.

``{"name": {"term": 1, "position": {...}}}``, one entry for each relay. The file is
replaced as a whole and never written in place, so a crash leaves the old one or the new
one. One that is there and cannot be read is an error, never "no position": a relay that
forgets where it was would trust whatever slot it finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from cdc.errors import (
    CdcError,
    OperatorNeeded,
    RequirementMissing,
    SettingsError,
    SinkUnavailable,
    SinkUncertain,
)
from cdc.finding import failure, ok, warning
from cdc.sinks import Kept, Pace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from cdc.finding import Finding

SUFFIX: Final = ".position"
_NAME: Final = "jsonl.position"
_LIMIT_S: Final = 30.0
"""A disk that answers later than that hangs."""

_LEAVE_LIMIT_S: Final = 2.0
_MODE: Final = 0o600
Answer = TypeVar("Answer")


class SidecarPositions:
    """A position store for a file of JSON lines.

    Args:
        path: of the file with the events; positions go to the same with ``.position``.

    Attributes:
        pace: ten times a second while events flow, because what is not stored is
            repeated after a crash: two fsyncs beside those of the events. Once a
            second while only foreign WAL passes.

    """

    pace = Pace(events_s=0.1, idle_s=1.0, idle_bytes=0)

    def __init__(self, path: str) -> None:
        self._events = Path(path)
        self._path = Path(path + SUFFIX)
        self._turn = threading.Lock()
        self._working: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._working:
            await asyncio.wait(self._working, timeout=_LEAVE_LIMIT_S)

    async def read(self, name: str) -> Kept | None:
        """Return what the highest term has written last, None if nobody has.

        Raises:
            OperatorNeeded: the file is there and holds something else.
            RequirementMissing: we may not open it.

        """
        entries = await self._in_thread(lambda: _entries(self._path))
        entry = entries.get(name)
        if entry is None:
            return None
        return Kept(name, entry["term"], orjson.dumps(entry["position"]))

    async def write(self, kept: Kept) -> None:
        """Keep it, unless a later term has written; durable when this returns.

        Raises what :meth:`read` raises.
        """
        await self._in_thread(lambda: self._write(kept))

    async def check(self) -> list[Finding]:
        """Test whether the file could be replaced, and what it holds be read."""
        try:
            await self._in_thread(lambda: _entries(self._path))
        except CdcError as exc:
            return [failure(_NAME, str(exc), exc.hint)]
        if os.access(self._path.parent, os.W_OK | os.X_OK):
            return [ok(_NAME, f"{self._path} keeps the position")]
        return [
            failure(
                _NAME,
                f"{self._path}, which keeps the position, cannot be replaced: its"
                " folder may not be written to",
                "allow this user to write there, or set CDC_JSONL__PATH",
            )
        ]

    async def make(self) -> list[str]:
        """Nothing has to be there before the first write."""
        return []

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        """Do it in a thread, which nobody can cancel, and wait for a limited time."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        self._working = {one for one in self._working if not one.done()} | {working}
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await asyncio.shield(working)
        except TimeoutError as exc:
            raise SinkUncertain(
                f"{self._path}: the disk has not answered within {_LIMIT_S:g} s"
            ) from exc

    def _write(self, kept: Kept) -> None:
        # One after the other: a write that was given up goes on in its thread.
        with self._turn:
            entries = _entries(self._path)
            known = entries.get(kept.name)
            if known is not None and known["term"] > kept.term:
                return
            position = orjson.loads(kept.document)
            entries[kept.name] = {"term": kept.term, "position": position}
            try:
                self._replace(orjson.dumps(entries, option=orjson.OPT_APPEND_NEWLINE))
            except OSError as exc:
                raise _not_written(self._path, exc) from exc

    def _replace(self, content: bytes) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(fresh, flags, _MODE)
        try:
            self._let_in(descriptor)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _let_in(self, descriptor: int) -> None:
        """Let whoever may use the events use the positions, too.

        Another user's command, an administrator's, must not lock the relay out.
        """
        with contextlib.suppress(FileNotFoundError, PermissionError):
            like = self._events.stat()
            if stat.S_ISREG(like.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
                os.fchown(descriptor, like.st_uid, like.st_gid)


class NoPositions:
    """The store of a sink that cannot keep positions: the slot alone remembers.

    Attributes:
        pace: as the slot is told of what is acknowledged anyway.

    """

    pace = Pace(events_s=0.1, idle_s=0.1, idle_bytes=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    async def read(self, name: str) -> Kept | None:
        """Nothing is known of anybody."""
        del name
        return None

    async def write(self, kept: Kept) -> None:
        """Nothing is kept."""
        del kept

    async def check(self) -> list[Finding]:
        """Say what is missing."""
        return [
            warning(
                _NAME,
                "stdout keeps no position: a slot that is lost or moved by somebody"
                " else goes unnoticed",
                "set CDC_JSONL__PATH to a file where that matters",
            )
        ]

    async def make(self) -> list[str]:
        """There is nothing to make."""
        return []


def _entries(path: Path) -> dict[str, Any]:
    """Return what a file holds by name; nothing when there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except PermissionError as exc:
        raise RequirementMissing(
            f"{path}, which keeps the position, cannot be opened: {exc.strerror}",
            hint="allow this user to read and write it",
        ) from exc
    except OSError as exc:
        raise SinkUnavailable(
            f"{path}, which keeps the position, cannot be read: {exc.strerror}",
            hint="look at its disk",
        ) from exc
    try:
        entries = orjson.loads(content)
    except orjson.JSONDecodeError as exc:
        raise _unreadable(path) from exc
    if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
        raise _unreadable(path)
    return entries


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("term"), int)
        and isinstance(entry.get("position"), dict)
    )


def _unreadable(path: Path) -> OperatorNeeded:
    return OperatorNeeded(
        f"{path} keeps the position and holds something else",
        hint="restore it; to go by the slot alone, which may leave out events when that"
        " was moved, move the file away",
    )


def _not_written(path: Path, exc: OSError) -> CdcError:
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return SettingsError(
            f"CDC_JSONL__PATH: {path} cannot be opened: {exc.strerror}",
            hint="make its folder, or name another file",
        )
    return SinkUnavailable(
        f"{path}, which keeps the position, cannot be written: {exc.strerror}",
        hint="free space on its disk, or allow this user to write to its folder",
    )
