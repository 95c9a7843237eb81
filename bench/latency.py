"""Latency: from COMMIT returned to the event in the broker's log, and in a consumer.

Writer, relay and consumer are processes of their own; beside them the bare round trips
of one send and of one row through pg_recvlogical, in the same run.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

import psycopg
from aiokafka.errors import KafkaError

from bench.bare import bare_frames, bare_sends
from bench.figures import Percentiles, paired_ratio
from bench.race import RaceFailed
from bench.source import Source
from bench.steady import Load, Times, steady
from bench.table import NOTHING, Table, around, milliseconds, number
from bench.walferry import Walferry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.race import Contestant
    from bench.report import Report
    from bench.session import Session

LOADS: Final = ((10, 1), (1_000, 1), (10_000, 10))
"""Events a second, and rows in a transaction: a writer commits no faster."""
_BARE: Final = 500
TIMES: Final = ("p50 ms", "p99 ms", "longest ms")
HEAD: Final = ("what", "who", "to", "events/s", *TIMES, "us CPU an event")


async def latency(session: Session) -> None:
    """Measure three rates, and the bare round trips beside each."""
    seconds = session.options.seconds / 2
    with session.report.table(Table(title="Latency after COMMIT", head=HEAD)) as table:
        table.notes.append(
            "Median of the runs' percentiles; the longest of all. The broker's own"
            " clock (to log) has steps of 1 ms."
        )
        async with Source("18", session.broker.address) as source:
            session.report.version("Postgres 18", source.release)
            for per_second, rows in LOADS:
                load = Load(per_second=per_second, rows=rows, seconds=seconds)
                laps = await steady_laps(session, source, [Walferry()], load)
                add_rows(table, load, laps)
            await _bare(session, source, table)


async def steady_laps(
    session: Session, source: Source, contestants: Sequence[Contestant], load: Load
) -> dict[str, list[Times | None]]:
    """Let the contestants carry the load in turn, half as often as they race."""
    laps: dict[str, list[Times | None]] = {one.name: [] for one in contestants}
    for lap in range(-(-session.options.runs // 2)):
        shift = lap % len(contestants)
        for contestant in [*contestants[shift:], *contestants[:shift]]:
            times = await _one(session, source, contestant, load)
            laps[contestant.name].append(times)
    return laps


def add_rows(table: Table, load: Load, laps: dict[str, list[Times | None]]) -> None:
    """Add two rows for each contestant: to the log, and to the consumer."""
    label = f"{load.per_second:,}/s, {load.rows} a commit"
    for name, every in laps.items():
        times = [one for one in every if one]
        if not times:
            table.add(label, name, "failed", *[NOTHING] * 5)
            continue
        rate = number(median(one.per_second for one in times))
        to_log = _middle([one.appended for one in times])
        to_hands = _middle([one.consumed for one in times])
        cpu = number(median(one.cpu_us for one in times))
        table.add(label, name, "log", rate, *milliseconds(to_log), cpu)
        table.add(label, name, "consumer", rate, *milliseconds(to_hands), cpu)


def consumed_ratios(
    ours: Sequence[Times | None], theirs: Sequence[Times | None]
) -> tuple[str, str]:
    """Return our p50 and p99 to the consumer as shares of theirs, lap by lap."""
    pairs = [
        (a.consumed, b.consumed) for a, b in zip(ours, theirs, strict=False) if a and b
    ]
    p50 = paired_ratio([a.p50 for a, _ in pairs], [b.p50 for _, b in pairs])
    p99 = paired_ratio([a.p99 for a, _ in pairs], [b.p99 for _, b in pairs])
    return around(p50), around(p99)


async def _one(
    session: Session, source: Source, contestant: Contestant, load: Load
) -> Times | None:
    report: Report = session.report
    try:
        times = await steady(contestant, source, session.broker, load)
    except (RaceFailed, TimeoutError, OSError, KafkaError, psycopg.Error) as exc:
        report.failed(f"latency, {contestant.name}: {exc or repr(exc)}")
        return None
    report.keep("latency", {"asked": load.per_second, "times": times})
    p50, p99, longest = milliseconds(times.consumed)
    report.say(
        f"{load.per_second:,}/s: {contestant.name} to the consumer p50 {p50} ms,"
        f" p99 {p99} ms, longest {longest} ms"
    )
    return times


async def _bare(session: Session, source: Source, table: Table) -> None:
    for name, measure in (
        ("one aiokafka send", partial(bare_sends, session.broker)),
        ("one row by pg_recvlogical", partial(bare_frames, source)),
    ):
        try:
            times = await measure(_BARE)
        except (TimeoutError, EOFError, OSError, KafkaError, psycopg.Error) as exc:
            session.report.failed(f"{name}: {exc or repr(exc)}")
            continue
        session.report.keep("bare", {"what": name, "times": times})
        cells = (*milliseconds(times), NOTHING)
        table.add("bare round trip", name, NOTHING, NOTHING, *cells)


def _middle(several: Sequence[Percentiles]) -> Percentiles:
    return Percentiles(
        count=sum(one.count for one in several),
        p50=median(one.p50 for one in several),
        p99=median(one.p99 for one in several),
        longest=max(one.longest for one in several),
    )
