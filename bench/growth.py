"""Growth: the same relay under ten times as much of everything, one thing at a time.

What an event costs should not depend on how many there are, how they are grouped, or
what else is in the WAL; and memory should not depend on any of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.events import PAYLOAD_BYTES, Events
from bench.figures import paired_ratio, spread
from bench.laps import Course, arrived, laps, panels
from bench.source import Source
from bench.table import NOTHING, Table, around, mebibytes, number
from bench.walferry import Walferry

if TYPE_CHECKING:
    from bench.race import Run
    from bench.session import Session

_LARGEST_PAYLOAD: Final = 1_000_000
_VOLUME_BYTES: Final = 200_000_000
_TOPICS: Final = 1_000
HEAD: Final = (
    "what",
    "events",
    "events/s",
    "us CPU an event",
    "times the first",
    "us CPU a KiB",
    "RSS peak MiB",
)


def growths(base: int) -> dict[str, Events]:
    """Return the loads by what has grown; the first is what they are held against.

    Args:
        base: how many events the first has.

    """
    first = Events.about(base, 5)
    large = Events.about(base, 1_000)
    return {
        "5 rows a transaction": first,
        "10x the events": replace(first, count=first.count * 10),
        "1,000 rows a transaction": large,
        "10,000 rows": Events.about(base, 10_000),
        f"{base * 10:,} rows in one": Events.about(base * 10, base * 10),
        "10x the payload": _of_payload(first, PAYLOAD_BYTES * 10),
        "100x the payload": _of_payload(first, PAYLOAD_BYTES * 100),
        "1 MB payloads": _of_payload(first, _LARGEST_PAYLOAD),
        "95 % other tables": replace(Events.about(base // 5, 5), has_noise=True),
        f"{_TOPICS:,} topics": replace(first, kinds=_TOPICS),
        f"{base * 10:,} keys": replace(first, count=base * 10, keys=base * 10),
    }


async def growth(session: Session) -> None:
    """Measure each of the growths."""
    base = max(session.options.events // 5, 5_000)
    runs = -(-session.options.runs // 2)
    first: list[Run | None] = []
    with session.report.table(Table(title="Growth", head=HEAD)) as table:
        async with Source("18", session.broker.address) as source:
            session.report.version("Postgres 18", source.release)
            for label, events in growths(base).items():
                course = Course(
                    label=label,
                    source=source,
                    broker=session.broker,
                    plugin="pgoutput",
                    events=events,
                )
                results = await laps(course, [Walferry(label)], runs, session.report)
                first = first or results[label]
                _add_row(table, course, results[label], first)
                session.report.show(panels(label, results))


def _of_payload(events: Events, payload_bytes: int) -> Events:
    """Return the load with other payloads, and not more than a certain volume."""
    most = max(events.in_transaction, _VOLUME_BYTES // payload_bytes)
    whole = most - most % events.in_transaction
    count = min(events.count, whole)
    return replace(events, payload_bytes=payload_bytes, count=count)


def _add_row(
    table: Table, course: Course, runs: list[Run | None], first: list[Run | None]
) -> None:
    there = arrived(runs)
    events = course.events
    if not there:
        table.add(course.label, f"{events.count:,}", "failed", *[NOTHING] * 4)
        return
    cpu = spread([run.cpu_us for run in there])
    times = paired_ratio(
        [run.cpu_us for run in there], [run.cpu_us for run in arrived(first)]
    )
    table.add(
        course.label,
        f"{events.count:,}",
        around(spread([run.rate for run in there])),
        around(cpu),
        number(times.median) if times else NOTHING,
        number(cpu.median / events.payload_bytes * 1024),
        mebibytes(max(run.rss_peak_bytes for run in there)),
    )
