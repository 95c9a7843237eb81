"""Cost: what a relay with nothing to do takes, and how long a command takes to begin.

What carrying an event costs stands in the catch-up's table.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Final

import psycopg
from aiokafka.errors import KafkaError

from bench.events import Events
from bench.figures import spread
from bench.process import Child, Command, fresh_folder, python
from bench.race import Lane, RaceFailed, first_reader
from bench.source import Source
from bench.table import Table, around, mebibytes
from bench.usage import grown, usage_of
from bench.walferry import Walferry, cdc

if TYPE_CHECKING:
    from bench.broker import Ends
    from bench.session import Session

_SETTLE_S: Final = 5.0
_POLL_S: Final = 0.05
_DEADLINE_S: Final = 120.0
_CARRIED: Final = 100_000
BEGINNINGS: Final = (
    ("python, doing nothing", python("-c", "pass")),
    ("import cdc.cli", python("-c", "import cdc.cli")),
    ("cdc --help", cdc(["--help"], {})),
)


async def cost(session: Session) -> None:
    """Measure idleness, before and after a load, and the start of commands."""
    await _idle(session)
    await _beginnings(session)


async def _idle(session: Session) -> None:
    seconds = session.options.seconds
    head = ("walferry", "CPU %", "RSS MiB", "RSS peak MiB", "WAL bytes written")
    title = f"Idle for {seconds:.0f} s"
    with session.report.table(Table(title=title, head=head)) as table:
        async with Source("18", session.broker.address) as source:
            for what, carried in (("just started", 0), ("after a load", _CARRIED)):
                try:
                    await _idle_after(session, source, table, what, carried)
                except (
                    RaceFailed,
                    TimeoutError,
                    OSError,
                    KafkaError,
                    psycopg.Error,
                ) as exc:
                    session.report.failed(f"idle, {what}: {exc or repr(exc)}")


async def _idle_after(
    session: Session, source: Source, table: Table, what: str, carried: int
) -> None:
    name = f"bench_{uuid.uuid4().hex[:12]}"
    events = Events(count=max(carried, 5))
    with fresh_folder() as folder:
        lane = Lane(
            dsn=source.dsn,
            slot=name,
            plugin="pgoutput",
            recvlogical="",
            bootstrap_servers=session.broker.address,
            prefix=name,
            end_lsn="",
            folder=folder,
        )
        async with (
            session.broker.topics(events.topics(name)) as ends,
            source.slot(name, "pgoutput"),
        ):
            relay = Child(Walferry().command(lane), folder)
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await first_reader(relay, source, lane)
                    if carried:
                        await source.fill(events)
                        await _published(ends, events.count)
                await asyncio.sleep(_SETTLE_S)
                before, begin = usage_of(relay.pid), await source.lsn()
                began = time.perf_counter()
                await asyncio.sleep(session.options.seconds)
                after, end = usage_of(relay.pid), await source.lsn()
                took = time.perf_counter() - began
            except EOFError as exc:
                raise RaceFailed(f"it ended: {relay.last_words()}") from exc
            finally:
                await asyncio.to_thread(relay.stop)
        if after is None:
            raise RaceFailed(f"it ended: {relay.last_words()}")
        written = await source.wal_between(begin, end)
    share = 100 * grown(before, after) / took
    table.add(
        what,
        f"{share:.2f}",
        mebibytes(after.rss_bytes),
        mebibytes(after.rss_peak_bytes),
        f"{written:,}",
    )
    session.report.keep("idle", {"what": what, "cpu_percent": share, "usage": after})


async def _published(ends: Ends, count: int) -> None:
    while True:
        if await ends.total() >= count:
            return
        await asyncio.sleep(_POLL_S)


async def _beginnings(session: Session) -> None:
    title = "From the start of a process to its end"
    with session.report.table(Table(title=title, head=("command", "ms"))) as table:
        taken: dict[str, list[float]] = {name: [] for name, _ in BEGINNINGS}
        # The first round fills the page cache and the compiled files.
        for number in range(session.options.runs * 2 + 1):
            for name, command in BEGINNINGS:
                try:
                    milliseconds = await asyncio.to_thread(_timed, command)
                except (RaceFailed, TimeoutError, OSError) as exc:
                    session.report.failed(f"{name}: {exc}")
                    continue
                if number:
                    taken[name].append(milliseconds)
        for name, values in taken.items():
            if values:
                table.add(name, around(spread(values)))
        session.report.keep("beginnings", taken)


def _timed(command: Command) -> float:
    with fresh_folder() as folder:
        began = time.perf_counter()
        child = Child(command, folder)
        if child.wait(_DEADLINE_S):
            raise RaceFailed(child.last_words())
        return (time.perf_counter() - began) * 1e3
