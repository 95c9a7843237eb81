"""Which events the sink holds already: read back a topic at a time, kept on disk.

As many ids as a topic has may have to be remembered, and memory is bounded; SQLite's
temporary database spills to a file of its own and is gone when it is closed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from cdc.errors import RequirementMissing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from cdc.outbox import Event
    from cdc.sinks import ReadBack

_CACHE_KIB: Final = 16 * 1024
"""What stays in memory. Ids come in no order, so a small cache is read and written
again and again."""


class KnownIds:
    """Tells new events from those that are there.

    Args:
        read_back: None when the sink cannot be read: every event is new then, which
            repeats some, under the ids they had.
        since_ms: nothing that was published before this time is asked about;
            milliseconds since 1970, 0 for all of it.

    Raises RequirementMissing when the disk cannot take them.

    """

    def __init__(self, read_back: ReadBack | None, *, since_ms: int) -> None:
        self._read_back = read_back
        self._since_ms = since_ms
        self._topics: set[str] = set()
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        # An empty name is a database on disk that is deleted when it is closed.
        self._database = sqlite3.connect("")
        for pragma in (
            "synchronous = OFF",
            "journal_mode = OFF",
            f"cache_size = -{_CACHE_KIB}",
        ):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute(
            "CREATE TABLE known (topic TEXT, id TEXT, PRIMARY KEY (topic, id))"
            " WITHOUT ROWID"
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    async def new(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that are not there yet, in order.

        A topic is read when its first event comes, and not again: nobody else publishes
        there meanwhile.
        """
        if self._read_back is None:
            return list(events)
        for topic in dict.fromkeys(event.topic for event in events):
            if topic not in self._topics:
                await self._learn(topic, self._read_back)
        return [event for event in events if not self._is_known(event)]

    async def _learn(self, topic: str, read_back: ReadBack) -> None:
        async for ids in read_back.ids(topic, since_ms=self._since_ms):
            with _disk_needed():
                self._entered.executemany(
                    "INSERT OR IGNORE INTO known VALUES (?, ?)",
                    [(topic, event_id) for event_id in ids],
                )
        self._topics.add(topic)

    def _is_known(self, event: Event) -> bool:
        with _disk_needed():
            cursor = self._entered.execute(
                "SELECT 1 FROM known WHERE topic = ? AND id = ?",
                (event.topic, event.event_id),
            )
            return cursor.fetchone() is not None

    @property
    def _entered(self) -> sqlite3.Connection:
        assert self._database is not None  # noqa: S101 - used inside of its block
        return self._database


@contextlib.contextmanager
def _disk_needed() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise RequirementMissing(
            f"the ids of what the sink holds do not go into a temporary file: {exc}",
            hint="free space there, or name another folder in SQLITE_TMPDIR",
        ) from exc
