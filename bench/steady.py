"""A steady load: a writer, a contestant and a consumer, each a process of its own."""

from __future__ import annotations

import asyncio
import time
import uuid
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.broker import PARTITIONS
from bench.figures import Percentiles, percentiles
from bench.process import Child, Command, fresh_folder, python
from bench.race import Lane, RaceFailed, first_reader
from bench.usage import grown, usage_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.broker import Broker
    from bench.race import Contestant
    from bench.source import Source

_WARM_UP_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.02
_START_DEADLINE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many events a second.

    Attributes:
        per_second: events.
        rows: in a transaction.
        seconds: how long, after a warm-up that is not counted.

    """

    per_second: int
    rows: int
    seconds: float

    @property
    def commits_per_second(self) -> float:
        """Transactions a second."""
        return self.per_second / self.rows

    @property
    def warm_up(self) -> int:
        """So many events come first and are not counted."""
        return max(round(_WARM_UP_S * self.commits_per_second), 1) * self.rows

    @property
    def commits(self) -> int:
        """Transactions, warm-up and all."""
        counted = max(1, round(self.seconds * self.commits_per_second))
        return self.warm_up // self.rows + counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long a contestant took under one load.

    Attributes:
        contestant: who.
        per_second: the rate that the writer reached.
        cpu_us: of the contestant, an event.
        appended: from COMMIT returned to the record in the broker's log.
        consumed: from COMMIT returned to the record in the consumer's hands.

    """

    contestant: str
    per_second: float
    cpu_us: float
    appended: Percentiles
    consumed: Percentiles


async def steady(
    contestant: Contestant, source: Source, broker: Broker, load: Load
) -> Times:
    """Measure one contestant on a slot of its own.

    Raises:
        RaceFailed: it ended, or events did not come.

    """
    name = f"bench_{uuid.uuid4().hex[:12]}"
    appended = {"message.timestamp.type": "LogAppendTime"}
    with fresh_folder() as folder:
        lane = Lane(
            dsn=source.dsn,
            slot=name,
            plugin="pgoutput",
            recvlogical=str(source.program("pg_recvlogical")),
            bootstrap_servers=broker.address,
            prefix=name,
            end_lsn="",
            folder=folder,
        )
        async with (
            broker.topics([f"{name}.order0"], configs=appended),
            source.slot(name, "pgoutput"),
        ):
            relay = Child(contestant.command(lane), folder)
            try:
                async with asyncio.timeout(_START_DEADLINE_S):
                    await first_reader(relay, source, lane)
                before = usage_of(relay.pid)
                await _carry(lane, load)
                cpu_s = grown(before, usage_of(relay.pid))
            except (TimeoutError, EOFError) as exc:
                raise RaceFailed(
                    f"{contestant.name} at {load.per_second}/s: {exc};"
                    f" its log: {relay.last_words()}"
                ) from exc
            finally:
                await asyncio.to_thread(relay.stop)
        return times_of(contestant.name, folder, load, cpu_s)


async def _carry(lane: Lane, load: Load) -> None:
    """Have the load written and consumed."""
    patience = load.commits / load.commits_per_second * 2 + _PATIENCE_S
    reader = Child(_reader(lane, load, patience), lane.folder, "reader.log")
    try:
        ready = lane.folder / "consumed.ready"
        async with asyncio.timeout(_START_DEADLINE_S):
            while not ready.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(_POLL_S)
        writer = Child(_writer(lane, load), lane.folder, "writer.log")
        try:
            await _ended(writer, patience, "the writer")
        finally:
            await asyncio.to_thread(writer.stop)
        await _ended(reader, patience, "the consumer")
    finally:
        await asyncio.to_thread(reader.stop)


async def _ended(child: Child, patience: float, name: str) -> None:
    deadline = time.monotonic() + patience
    while child.is_running:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} does not end")
        await asyncio.sleep(_POLL_S)
    if child.exit_code:
        raise EOFError(f"{name} failed: {child.last_words()}")


def _writer(lane: Lane, load: Load) -> Command:
    arguments = [lane.dsn, "committed", load.commits, load.commits_per_second]
    return _module("bench.writer", *arguments, load.rows)


def _reader(lane: Lane, load: Load, patience: float) -> Command:
    where = [lane.bootstrap_servers, f"{lane.prefix}.order0", PARTITIONS]
    events = load.commits * load.rows
    return _module("bench.reader", *where, "consumed", events, patience)


def _module(name: str, *arguments: object) -> Command:
    return python("-m", name, *map(str, arguments))


def times_of(contestant: str, folder: Path, load: Load, cpu_s: float) -> Times:
    """Return what the notes of writer and reader, left in a folder, come to.

    Args:
        contestant: its name.
        folder: has ``committed`` and ``consumed``.
        load: that was carried.
        cpu_s: of the contestant, warm-up and all.

    """
    committed = _notes(folder / "committed")
    consumed = _notes(folder / "consumed")
    returned = {last: clocks for last, *clocks in _triples(committed)}
    to_log, to_hands = [], []
    for number, arrived_ns, appended_ms in _triples(consumed):
        if number <= load.warm_up:
            continue
        last = -(-number // load.rows) * load.rows
        monotonic_ns, wall_ns = returned[last]
        # COMMIT may return later than its event arrives: that is no negative time. The
        # broker's clock counts whole milliseconds; half of one is the fair guess.
        to_hands.append(max(0, arrived_ns - monotonic_ns) / 1e9)
        to_log.append(max(0, appended_ms * 1_000_000 + 500_000 - wall_ns) / 1e9)
    span = (committed[-2] - committed[1]) / 1e9
    return Times(
        contestant=contestant,
        per_second=(load.commits - 1) * load.rows / span if span else 0.0,
        cpu_us=cpu_s / (load.commits * load.rows) * 1e6,
        appended=percentiles(to_log),
        consumed=percentiles(to_hands),
    )


def _triples(notes: array[int]) -> Iterable[tuple[int, int, int]]:
    return zip(notes[::3], notes[1::3], notes[2::3], strict=True)


def _notes(path: Path) -> array[int]:
    notes = array("q")
    notes.frombytes(path.read_bytes())
    return notes
