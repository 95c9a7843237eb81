"""``slots list``, ``slots show`` and ``slots why``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.live import Live

from slots import catalog
from slots.cli import documents, tables
from slots.cli.options import (
    Json,
    LimitTexts,
    Name,
    Names,
    on_server,
    read_limits,
    read_seconds,
)
from slots.cli.readings import CONNECT_TIMEOUT_S, chosen, look, the_slot
from slots.connect import connect
from slots.state import History

if TYPE_CHECKING:
    from slots.connect import Target
    from slots.state import Limits, Reading

_FASTEST_S: Final = 0.1
_SAMPLE: Final = "1s"
_Sample = Annotated[
    str,
    typer.Option(
        "--sample",
        metavar="TIME",
        help="Look twice, so far apart, to know a rate; 0 looks once. With --watch,"
        " look every so often.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "list", epilog="Example: slots list --dsn postgresql://ops@db/postgres"
    )(on_server(_list))
    app.command("show", epilog="Example: slots show orders")(on_server(_show))
    app.command("why", epilog="Example: slots why orders --json | jq .causes")(
        on_server(_why)
    )


def _list(
    target: Target,
    names: Names = None,
    *,
    as_json: Json = False,
    is_watching: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")
    ] = False,
    sample: _Sample = _SAMPLE,
    limit: LimitTexts = None,
) -> None:
    """List replication slots: who reads them, what they hold, when that is too much."""
    limits = read_limits(limit)
    sample_s = read_seconds(sample, "--sample")
    if is_watching:
        asyncio.run(_keep_listing(target, names, limits, sample_s))
        return
    reading, history = asyncio.run(look(target, sample_s=sample_s))
    slots = chosen(reading, names)
    if as_json:
        documents.print_json(documents.listing(reading, slots, history, limits))
        return
    console = tables.console()
    if slots:
        console.print(
            tables.slot_table(reading, slots, history, limits, width=console.width)
        )
    else:
        console.print("there are no replication slots")
    for line in tables.finding_lines(reading, slots, history, limits):
        console.print(line)


def _show(
    target: Target,
    name: Name,
    *,
    as_json: Json = False,
    sample: _Sample = _SAMPLE,
    limit: LimitTexts = None,
) -> None:
    """Show everything about one slot, the verdict in words, and the remedy."""
    limits, (reading, history) = _look(target, sample, limit)
    slot = the_slot(reading, name)
    if as_json:
        document = documents.one_slot(reading, slot, history, limits)
        documents.print_json({"schema_version": documents.SCHEMA_VERSION, **document})
        return
    tables.console().print(tables.portrait(reading, slot, history, limits))


def _why(
    target: Target,
    name: Name,
    *,
    as_json: Json = False,
    sample: _Sample = _SAMPLE,
    limit: LimitTexts = None,
) -> None:
    """Say who holds the WAL of a slot, what is at stake, and what to do."""
    limits, (reading, history) = _look(target, sample, limit)
    slot = the_slot(reading, name)
    if as_json:
        documents.print_json(documents.explanation(reading, slot, history, limits))
        return
    console = tables.console()
    for line in tables.cause_lines(reading, slot, history, limits):
        console.print(line)


def _look(
    target: Target, sample: str, limit: list[str] | None
) -> tuple[Limits, tuple[Reading, History]]:
    limits = read_limits(limit)
    return limits, asyncio.run(look(target, sample_s=read_seconds(sample, "--sample")))


async def _keep_listing(
    target: Target, names: list[str] | None, limits: Limits, interval_s: float
) -> None:
    console, history = tables.console(), History()
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                reading = await catalog.read(connection)
                history.observe(reading)
                slots = chosen(reading, names)
                live.update(
                    tables.slot_table(
                        reading, slots, history, limits, width=console.width
                    ),
                    refresh=True,
                )
                await asyncio.sleep(interval_s or _FASTEST_S)
