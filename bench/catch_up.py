"""Catch-up: events that are in the WAL already, as fast as they can be carried.

walferry, slot to acks=all, beside pg_recvlogical, slot to a file, on copies of the same
slot with the same plugin options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.events import Events
from bench.figures import paired_ratio, spread
from bench.laps import Course, Results, arrived, both, laps, panels
from bench.recvlogical import RecvLogical
from bench.source import Source
from bench.table import NOTHING, Table, around, mebibytes
from bench.walferry import Walferry

if TYPE_CHECKING:
    from bench.race import Contestant
    from bench.session import Session

TRANSACTIONS: Final = (1, 5, 1_000)
LINEUPS: Final = (("18", "pgoutput"), ("15", "wal2json"))
HEAD: Final = (
    "what",
    "who",
    "events/s",
    "walferry is x as fast",
    "us CPU an event",
    "walferry takes x of that",
    "walsender busy %",
    "RSS peak MiB",
    "at rest MiB",
)


async def catch_up(session: Session) -> None:
    """Measure every size of transaction, with both plugins."""
    title = f"Catch-up of {session.options.events:,} events"
    with session.report.table(Table(title=title, head=HEAD)) as table:
        table.notes.append(
            "Median (lowest..highest) of the runs; ratios are of the runs of one lap."
        )
        for version, plugin in LINEUPS:
            async with Source(version, session.broker.address) as source:
                session.report.version(f"Postgres {version}", source.release)
                for rows in TRANSACTIONS:
                    course = Course(
                        label=f"{plugin} {version}, {rows:,} rows",
                        source=source,
                        broker=session.broker,
                        plugin=plugin,
                        events=Events.about(session.options.events, rows),
                    )
                    contestants: list[Contestant] = [Walferry(), RecvLogical()]
                    results = await laps(
                        course, contestants, session.options.runs, session.report
                    )
                    add_rows(table, course.label, results)
                    session.report.show(panels(course.label, results))


def add_rows(table: Table, label: str, results: Results) -> None:
    """Add a row for each contestant; the first is the one that others are held to."""
    ours = next(iter(results.values()))
    for name, runs in results.items():
        there = arrived(runs)
        if not there:
            table.add(label, name, "failed", *[NOTHING] * (len(table.head) - 3))
            continue
        pairs = both(ours, runs)
        ratio = paired_ratio(
            [mine.rate for mine, _ in pairs], [other.rate for _, other in pairs]
        )
        cpu = paired_ratio(
            [mine.cpu_us for mine, _ in pairs], [other.cpu_us for _, other in pairs]
        )
        busy = spread([100 * run.walsender_cpu_s / run.seconds for run in there])
        rest = spread([run.rss_rest_bytes for run in there]).median
        table.add(
            label,
            name,
            around(spread([run.rate for run in there])),
            NOTHING if runs is ours else around(ratio),
            around(spread([run.cpu_us for run in there])),
            NOTHING if runs is ours else around(cpu),
            f"{busy.median:.0f}",
            mebibytes(max(run.rss_peak_bytes for run in there)),
            mebibytes(rest) if rest else NOTHING,
        )
