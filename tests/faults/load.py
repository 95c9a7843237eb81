"""A service under load, and what must be true of the topic afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import psycopg

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kafka_records import Topics

WRITERS = 4
KEYS = 20
ROWS = 5
PAUSE_S = 0.015
"""Four writers of five rows each: about a thousand events a second."""

_log = logging.getLogger(__name__)

INSERT = (
    "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)"
    " VALUES ('o', %s, 't', %s) RETURNING id::text"
)


@dataclass(slots=True)
class Load:
    """Writers that keep committing through every fault of the server.

    A commit whose answer is lost may have happened: such events are allowed, not
    demanded. Each key has one writer, so its commit order is its writer's order.

    Attributes:
        committed: event id > (key, number within the key).
        uncertain: ids of which nobody knows.

    """

    dsn: str
    committed: dict[str, tuple[str, int]] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    _is_stopping: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Write while the block runs."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write(number))
            try:
                yield self
            finally:
                self._is_stopping = True

    async def _write(self, writer: int) -> None:
        count = 0
        while not self._is_stopping:
            try:
                async with await psycopg.AsyncConnection.connect(self.dsn) as link:
                    while not self._is_stopping:
                        await self._transaction(link, writer, count)
                        count += 1
                        await asyncio.sleep(PAUSE_S)
            except psycopg.Error:
                count += 1
                await asyncio.sleep(0.1)

    async def _transaction(
        self, link: psycopg.AsyncConnection[Any], writer: int, count: int
    ) -> None:
        key = f"w{writer}-{count % KEYS}"
        written = {}
        for row in range(ROWS):
            number = count * ROWS + row
            cursor = await link.execute(INSERT, (key, json.dumps(number)))
            (event_id,) = await cursor.fetchone() or ("",)
            written[event_id] = (key, number)
        self.uncertain.update(written)
        await link.commit()
        self.uncertain.difference_update(written)
        self.committed |= written

    async def grown_by(self, count: int, deadline_s: float = 60.0) -> None:
        """Wait until so many more events are committed."""
        target = len(self.committed) + count
        await eventually(
            lambda: len(self.committed) >= target, deadline_s, what="the load goes on"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a consumer has read of a load.

    Attributes:
        committed: events that were certainly committed.
        repeats: records beyond the first of each event.
        replays: how often, at most, the records of one key went back to earlier ones.

    """

    committed: int
    repeats: int
    replays: int


async def outcome(
    load: Load, topics: Topics, topic: str, *, has_zombie: bool = False
) -> Outcome:
    """Read the topic to its end and hold it against what was committed.

    Asserted: nothing is missing and nothing is there that was never committed; per key
    the first appearances are in commit order; a repeat has the bytes of the first, and
    whoever goes back to an earlier event goes on from there without leaving one out,
    unless a relay that had been replaced woke up and sent what it still held.
    """

    async def everything() -> list[Any]:
        records = await topics.read_to_end(topic, 60.0)
        missing = load.committed.keys() - {_id(record) for record in records}
        assert not missing, f"{len(missing)} of {len(load.committed)} missing"
        return records

    records = await eventually(everything, 60.0, what="every committed event arrives")
    histories: dict[bytes, _History] = {}
    for record in records:
        event_id = _id(record)
        assert event_id in load.committed or event_id in load.uncertain
        history = histories.setdefault(record.key, _History())
        has_gap = history.add(event_id, record)
        assert has_zombie or not has_gap, "a replay left something out"
    first = sum(len(history.places) for history in histories.values())
    found = Outcome(
        committed=len(load.committed),
        repeats=len(records) - first,
        replays=max(history.replays for history in histories.values()),
    )
    _log.info("%s", found)
    return found


@dataclass(slots=True)
class _History:
    """The records of one key, in the order of their partition."""

    first: list[Any] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    place: int = -1
    replays: int = 0

    def add(self, event_id: str, record: Any) -> bool:
        """Take the next record; tell whether it skips some that have been before."""
        place = self.places.setdefault(event_id, len(self.first))
        has_gap = place > self.place + 1
        if place == len(self.first):
            if self.first:
                assert int(self.first[-1].value) < int(record.value), "out of order"
            self.first.append(record)
        else:
            again = self.first[place]
            assert (record.value, record.headers) == (again.value, again.headers)
            self.replays += place <= self.place
        self.place = place
        return has_gap


def _id(record: Any) -> str:
    return str(dict(record.headers)["id"].decode())
