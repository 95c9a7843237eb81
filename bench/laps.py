"""Races in turn: the same load for every contestant, each on a copy of one slot."""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

import psycopg
from aiokafka.errors import KafkaError

from bench.figures import rates, thinned
from bench.picture import Line, Panel
from bench.process import fresh_folder
from bench.race import Lane, RaceFailed, race

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.broker import Broker
    from bench.events import Events
    from bench.race import Contestant, Run
    from bench.report import Report
    from bench.source import Source

_DRAWN: Final = 40
_KEPT: Final = 240
TEMPLATE: Final = "bench"

Results = dict[str, list["Run | None"]]
"""Each contestant's runs, lap by lap; None where it did not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is run over.

    Attributes:
        label: names it in results.
        source: whose WAL.
        broker: where to.
        plugin: decodes.
        events: the load.

    """

    label: str
    source: Source
    broker: Broker
    plugin: str
    events: Events


async def laps(
    course: Course, contestants: Sequence[Contestant], count: int, report: Report
) -> Results:
    """Let every contestant run so many times, in turn, who begins in turn as well."""
    source = course.source
    results: Results = {contestant.name: [] for contestant in contestants}
    report.say(f"{course.label}: writing {course.events.count:,} events")
    async with source.slot(TEMPLATE, course.plugin):
        begin = await source.lsn()
        try:
            end = await source.fill(course.events)
        except (psycopg.Error, TimeoutError) as exc:
            report.failed(f"{course.label}, writing: {exc or repr(exc)}")
            return {name: [None] * count for name in results}
        size = await source.wal_between(begin, end)
        per_event = size / course.events.count
        report.say(f"{course.label}: {per_event:,.0f} bytes of WAL an event")
        for lap in range(count):
            shift = lap % len(contestants)
            for contestant in [*contestants[shift:], *contestants[:shift]]:
                run = await _one(course, contestant, end, report)
                results[contestant.name].append(run)
    return results


def both(
    ours: Sequence[Run | None], theirs: Sequence[Run | None]
) -> list[tuple[Run, Run]]:
    """Return the laps in which both arrived."""
    pairs = zip(ours, theirs, strict=False)
    return [(mine, other) for mine, other in pairs if mine and other]


def arrived(runs: Sequence[Run | None]) -> list[Run]:
    """Return the runs that got to the end."""
    return [run for run in runs if run]


def middle(runs: Sequence[Run]) -> Run:
    """Return the run of the median rate (the slower of two)."""
    ordered = sorted(runs, key=lambda run: run.rate)
    return ordered[(len(ordered) - 1) // 2]


def panels(label: str, results: Results) -> list[Panel]:
    """Return the pictures of every contestant's middle run: rate, and memory."""
    chosen = [middle(arrived(runs)) for runs in results.values() if arrived(runs)]
    rate_lines, memory_lines = [], []
    for run in chosen:
        way = [(one.seconds, one.events) for one in run.points]
        held = [(one.seconds, one.rss_bytes / 2**20) for one in run.points]
        rate_lines.append(
            Line(name=run.contestant, points=rates(way, run.seconds / _DRAWN))
        )
        memory_lines.append(Line(name=run.contestant, points=held))
    return [
        Panel(title=f"{label}: events/s", lines=rate_lines),
        Panel(title=f"{label}: resident MiB", lines=memory_lines),
    ]


async def _one(
    course: Course, contestant: Contestant, end: str, report: Report
) -> Run | None:
    source, broker, events = course.source, course.broker, course.events
    name = f"bench_{uuid.uuid4().hex[:12]}"
    partitions = 6 if events.kinds == 1 else 1
    try:
        with fresh_folder() as folder:
            lane = Lane(
                dsn=source.dsn,
                slot=name,
                plugin=course.plugin,
                recvlogical=str(source.program("pg_recvlogical")),
                bootstrap_servers=broker.address,
                prefix=name,
                end_lsn=end,
                folder=folder,
            )
            async with (
                broker.topics(events.topics(name), partitions=partitions) as ends,
                source.copied_slot(name, of=TEMPLATE),
            ):
                run = await race(contestant, source, lane, ends, events.count)
    except (RaceFailed, TimeoutError, OSError, KafkaError, psycopg.Error) as exc:
        report.failed(f"{course.label}, {contestant.name}: {exc or repr(exc)}")
        return None
    kept = replace(run, points=tuple(thinned(run.points, _KEPT)))
    reading = {"course": course.label, "load": os.getloadavg()[0], **asdict(kept)}
    report.keep("races", reading)
    report.say(
        f"{course.label}: {run.contestant} {run.rate:,.0f}/s,"
        f" {run.cpu_us:.1f} us CPU an event, {run.rss_peak_bytes / 2**20:.0f} MiB"
    )
    if run.repeated:
        report.failed(f"{course.label}, {run.contestant}: {run.repeated} repeated")
    return run
