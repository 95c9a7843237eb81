"""Which events a file of JSON lines holds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from cdc.errors import SinkUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import BinaryIO, Self

_PIECE_BYTES: Final = 1 << 20


class JsonlReadBack:
    """Reads a file of JSON lines, from its beginning each time.

    Args:
        path: of the file; one that does not exist holds nothing, nor does a pipe.

    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    async def ids(self, topic: str, *, since_ms: int) -> AsyncIterator[list[str]]:
        """Yield the ids of a topic's events, in pieces; see :class:`ReadBack`.

        A line without an end is no event: it was never acknowledged, and the sink cuts
        it off.
        """
        try:
            file = await asyncio.to_thread(_open, self._path)
            if file is None:
                return
            with file:
                end = await asyncio.to_thread(_durable_end, file)
                while lines := await asyncio.to_thread(_lines_before, end, file):
                    found = [_id_of(line, topic, since_ms) for line in lines]
                    yield [event_id for event_id in found if event_id is not None]
        except OSError as exc:
            raise SinkUnavailable(
                f"{self._path} cannot be read: {exc.strerror}",
                hint="allow this user to read it, or look at its disk",
            ) from exc


def _open(path: Path) -> BinaryIO | None:
    if not path.exists():
        return None
    # Opening a pipe or a terminal would wait for somebody who writes to it; a folder
    # is a mistake that opening it tells.
    return path.open("rb") if path.is_file() or path.is_dir() else None


def _durable_end(file: BinaryIO) -> int:
    """Return where the file ends, once everything before is on the disk.

    A process that was killed may have left lines in memory only. What is told as held
    is not written again, so it must not be lost with the machine either.
    """
    end = os.fstat(file.fileno()).st_size
    os.fdatasync(file.fileno())
    return end


def _lines_before(end: int, file: BinaryIO) -> list[bytes]:
    return file.readlines(_PIECE_BYTES) if file.tell() < end else []


def _id_of(line: bytes, topic: str, since_ms: int) -> str | None:
    """Return the id when a line is an event of that topic and time."""
    if not line.endswith(b"\n"):
        return None
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    match event:
        case {"id": str(event_id), "topic": str(named), "timestamp_ms": int(time_ms)}:
            return event_id if named == topic and time_ms >= since_ms else None
    return None
