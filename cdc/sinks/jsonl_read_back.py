"""Which events a file of JSON lines holds."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from cdc.errors import SinkUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import BinaryIO, Self

_LINES_AT_ONCE: Final = 1000


class JsonlReadBack:
    """Reads a file of JSON lines, from its beginning each time.

    Args:
        path: of the file; one that does not exist holds nothing.

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

        A torn last line is no event: it was never acknowledged.
        """
        try:
            file = await asyncio.to_thread(self._path.open, "rb")
        except FileNotFoundError:
            return
        except OSError as exc:
            raise SinkUnavailable(
                f"{self._path} cannot be read: {exc.strerror}",
                hint="allow this user to read it",
            ) from exc
        with file:
            while lines := await asyncio.to_thread(_some, file):
                yield [
                    event["id"]
                    for event in map(_event, lines)
                    if event.get("topic") == topic and event["timestamp_ms"] >= since_ms
                ]


def _some(file: BinaryIO) -> list[bytes]:
    return list(islice(file, _LINES_AT_ONCE))


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}
