"""Peers: the same slot and the same Kafka, by Debezium and by walbox.

Each is optional: what cannot be had here is told, and the others run.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from bench.catch_up import HEAD, TRANSACTIONS, add_rows
from bench.debezium import CONNECT, DEBEZIUM, Debezium
from bench.events import Events
from bench.laps import Course, laps, panels
from bench.latency import HEAD as LATENCY_HEAD
from bench.latency import add_rows as add_latency
from bench.latency import consumed_ratios, steady_laps
from bench.source import Source
from bench.steady import Load
from bench.table import Table
from bench.walbox import WALBOX, Walbox
from bench.walferry import Walferry
from cdc.errors import RequirementMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.race import Contestant
    from bench.session import Session

_SLOW = 10
"""A peer that takes a transaction at a time gets this part of the events."""


async def peers(session: Session) -> None:
    """Race every peer that can be had, then compare latency with the tuned one."""
    report = session.report
    with ExitStack() as stack:
        debezium: list[Debezium] = []
        walbox: list[Contestant] = []
        try:
            for is_tuned in (False, True):
                one = stack.enter_context(closing(Debezium(is_tuned=is_tuned)))
                debezium.append(one)
            report.version("Debezium", DEBEZIUM)
            report.version("Kafka Connect", CONNECT)
        except RequirementMissing as exc:
            report.left_out(f"Debezium: {exc} -> {exc.hint}")
        try:
            walbox.append(Walbox(session.options.walbox_python))
            report.version("walbox", WALBOX)
        except RequirementMissing as exc:
            report.left_out(f"walbox: {exc} -> {exc.hint}")
        async with Source("18", session.broker.address) as source:
            report.version("Postgres 18", source.release)
            await _catch_up(session, source, debezium, walbox)
            if debezium:
                await _latency(session, source, debezium[-1])


async def _catch_up(
    session: Session,
    source: Source,
    quick: Sequence[Contestant],
    slow: Sequence[Contestant],
) -> None:
    options = session.options
    title = f"Catch-up of {options.events:,} events, beside peers"
    with session.report.table(Table(title=title, head=HEAD)) as table:
        for rows in TRANSACTIONS:
            for rivals, events, runs in (
                (quick, options.events, options.runs),
                (slow, options.events // _SLOW, -(-options.runs // 2)),
            ):
                if not rivals:
                    continue
                course = Course(
                    label=f"{events:,} in {rows:,} rows",
                    source=source,
                    broker=session.broker,
                    plugin="pgoutput",
                    events=Events.about(events, rows),
                )
                contestants = [Walferry(), *rivals]
                results = await laps(course, contestants, runs, session.report)
                add_rows(table, course.label, results)
                session.report.show(panels(course.label, results))


async def _latency(session: Session, source: Source, rival: Contestant) -> None:
    load = Load(per_second=1_000, rows=1, seconds=session.options.seconds / 2)
    title = "Latency after COMMIT, beside tuned Debezium"
    with session.report.table(Table(title=title, head=LATENCY_HEAD)) as table:
        ours: Contestant = Walferry()
        times = await steady_laps(session, source, [ours, rival], load)
        add_latency(table, load, times)
        p50, p99 = consumed_ratios(times[ours.name], times[rival.name])
        table.notes.append(
            f"To the consumer walferry takes x of its time, lap by lap: p50 {p50},"
            f" p99 {p99}."
        )
