"""One contestant, one slot, one load: from the first byte streamed to the last event.

The clock starts when the slot has a reader, so that nobody's start-up counts, and ends
when the topics have every event, or the reader has written all of it and exited.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from bench.process import Child, Command
from bench.usage import Usage, grown, usage_of

if TYPE_CHECKING:
    from pathlib import Path

    from bench.broker import Ends
    from bench.source import Source

_POLL_S: Final = 0.02
_POLLS_SHARE: Final = 0.05
"""At most this share of a core is spent on asking how far it is."""
_START_DEADLINE_S: Final = 120.0
_SLOWEST_PER_S: Final = 250
_STALL_S: Final = 120.0
"""A large transaction is decoded as a whole before its first row comes."""
_REST_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What a contestant is given.

    Attributes:
        dsn: of the database.
        slot: to be read, by nobody else.
        plugin: the slot's.
        recvlogical: the path of the server's own pg_recvlogical.
        bootstrap_servers: of the Kafka.
        prefix: a topic is this, a dot and the row's aggregate type.
        end_lsn: where the WAL that counts ends.
        folder: for files of the contestant's own.

    """

    dsn: str
    slot: str
    plugin: str
    recvlogical: str
    bootstrap_servers: str
    prefix: str
    end_lsn: str
    folder: Path

    @property
    def output(self) -> Path:
        """Where a contestant without Kafka writes."""
        return self.folder / "output"


class Contestant(Protocol):
    """Somebody who reads a slot."""

    @property
    def name(self) -> str:
        """What it is called in the results."""
        ...

    @property
    def writes_to_kafka(self) -> bool:
        """Whether it goes on for ever and fills topics; else it exits at the end."""
        ...

    def command(self, lane: Lane) -> Command:
        """Return what is run; its process is the one that is measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """How far it was, and what it held, so many seconds after the start."""

    seconds: float
    events: float
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one race came to.

    Attributes:
        contestant: who ran.
        events: how many there were.
        repeated: how many more records the topics had in the end.
        seconds: from the slot's first reader to the last event.
        cpu_s: of the contestant's process in that time.
        walsender_cpu_s: of the server process that decoded for it.
        rss_peak_bytes: the most it held, from its start on.
        rss_rest_bytes: what it held two seconds after the last event; 0 if it exited.
        points: its way.

    """

    contestant: str
    events: int
    repeated: int
    seconds: float
    cpu_s: float
    walsender_cpu_s: float
    rss_peak_bytes: int
    rss_rest_bytes: int
    points: tuple[Point, ...]

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU an event."""
        return self.cpu_s / self.events * 1e6


class RaceFailed(RuntimeError):
    """A contestant did not get to the end; the message has the end of its log."""


@dataclass(slots=True)
class _Track:
    """Readings of a running race."""

    pid: int
    walsender: int
    began: float = field(default_factory=time.perf_counter)
    points: list[Point] = field(default_factory=list)
    moved_at: float = 0.0
    before: Usage | None = None
    latest: Usage | None = None
    walsender_before: Usage | None = None
    walsender_latest: Usage | None = None

    def __post_init__(self) -> None:
        self.before = self.latest = usage_of(self.pid)
        self.walsender_before = self.walsender_latest = usage_of(self.walsender)

    def note(self, events: float) -> None:
        """Take a reading; the last stands where the process is gone.

        Raises:
            TimeoutError: it has not got any further for too long.

        """
        seconds = time.perf_counter() - self.began
        self.latest = usage_of(self.pid) or self.latest
        self.walsender_latest = usage_of(self.walsender) or self.walsender_latest
        rss = self.latest.rss_bytes if self.latest else 0
        if not self.points or events > self.points[-1].events:
            self.moved_at = seconds
        self.points.append(Point(seconds=seconds, events=events, rss_bytes=rss))
        if seconds - self.moved_at > _STALL_S:
            raise TimeoutError


async def race(
    contestant: Contestant, source: Source, lane: Lane, ends: Ends, events: int
) -> Run:
    """Run one contestant over a lane and return what it came to.

    Raises:
        RaceFailed: it exited early, or took longer than its deadline.

    """
    program = Child(contestant.command(lane), lane.folder)
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            walsender = await first_reader(program, source, lane)
        track = _Track(program.pid, walsender)
        async with asyncio.timeout(60 + events / _SLOWEST_PER_S):
            if contestant.writes_to_kafka:
                done = await _until_published(program, ends, track, events)
            else:
                done = await _until_exit(program, lane.output, track, events)
        rest = await _at_rest(program)
    except TimeoutError as exc:
        raise _failure(contestant, "took too long", program) from exc
    except EOFError as exc:
        raise _failure(contestant, "ended early", program) from exc
    finally:
        await asyncio.to_thread(program.stop)
    return Run(
        contestant=contestant.name,
        events=events,
        repeated=done - events,
        seconds=track.points[-1].seconds,
        cpu_s=grown(track.before, track.latest),
        walsender_cpu_s=grown(track.walsender_before, track.walsender_latest),
        rss_peak_bytes=track.latest.rss_peak_bytes if track.latest else 0,
        rss_rest_bytes=rest,
        points=tuple(track.points),
    )


async def first_reader(program: Child, source: Source, lane: Lane) -> int:
    """Return the server process that decodes for a program, once there is one.

    Raises:
        EOFError: the program has ended.

    """
    while True:
        if (pid := await source.reader_of(lane.slot)) is not None:
            return pid
        if not program.is_running:
            raise EOFError
        await asyncio.sleep(_POLL_S / 4)


async def _until_published(
    program: Child, ends: Ends, track: _Track, events: int
) -> int:
    while True:
        used = time.process_time()
        count = await ends.total()
        track.note(count)
        if count >= events:
            return count
        if not program.is_running:
            raise EOFError
        cost = time.process_time() - used
        await asyncio.sleep(max(_POLL_S, cost / _POLLS_SHARE))


async def _until_exit(program: Child, output: Path, track: _Track, events: int) -> int:
    """Wait for the exit; how far it was is told by the bytes it had written."""
    while program.is_running:
        track.note(_size(output))
        await asyncio.sleep(_POLL_S)
    track.note(_size(output))
    if program.exit_code != 0:
        raise EOFError
    written = max(track.points[-1].events, 1)
    track.points = [
        Point(
            seconds=point.seconds,
            events=point.events / written * events,
            rss_bytes=point.rss_bytes,
        )
        for point in track.points
    ]
    return events


async def _at_rest(program: Child) -> int:
    if not program.is_running:
        return 0
    await asyncio.sleep(_REST_S)
    usage = usage_of(program.pid)
    return usage.rss_bytes if usage else 0


def _failure(contestant: Contestant, what: str, program: Child) -> RaceFailed:
    return RaceFailed(f"{contestant.name} {what}; its log: {program.last_words()}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
