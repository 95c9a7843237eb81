"""A service under load, and what must be true of the topic afterwards."""

from __future__ import annotations

import asyncio
import json
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a consumer has read of a load."""

    records: int
    repeats: int


async def outcome(load: Load, topics: Topics, topic: str) -> Outcome:
    """Read the topic to its end and hold it against what was committed.

    Asserted: nothing is missing, nothing is there that was never committed, per key the
    first appearances are in commit order, and every repeat has the bytes of the first.
    """

    async def everything() -> list[Any]:
        records = await topics.read_to_end(topic, 60.0)
        missing = load.committed.keys() - {_id(record) for record in records}
        assert not missing, f"{len(missing)} of {len(load.committed)} missing"
        return records

    records = await eventually(everything, 60.0, what="every committed event arrives")
    first: dict[str, Any] = {}
    order: dict[bytes, int] = {}
    for record in records:
        event_id = _id(record)
        assert event_id in load.committed or event_id in load.uncertain
        if event_id in first:
            again = first[event_id]
            assert (record.key, record.value) == (again.key, again.value)
            assert dict(record.headers) == dict(again.headers)
            continue
        first[event_id] = record
        assert order.get(record.key, -1) < int(record.value), "out of order"
        order[record.key] = int(record.value)
    return Outcome(len(records), len(records) - len(first))


def _id(record: Any) -> str:
    return str(dict(record.headers)["id"].decode())
