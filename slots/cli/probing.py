"""``slots check``: a probe for monitoring systems, in their plugins' convention.

One line and an exit code: 0 ok, 1 warning, 2 critical, 3 for whatever kept it from
measuring.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from slots.cli.failover import failover_findings
from slots.cli.options import (
    LimitTexts,
    Names,
    UsageMistake,
    on_server,
    read_limits,
    read_seconds,
)
from slots.cli.readings import look
from slots.state import (
    Finding,
    Kind,
    Level,
    Threshold,
    budget,
    health,
    server_health,
)
from slots.state.units import parse_bytes, parse_share, show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slots.connect import Target
    from slots.state import Limits, Reading, Slot

COMMAND: Final = "check"
TITLE: Final = "SLOTS"
UNKNOWN: Final = 3
_SIZE_LIMITS: Final = ("lag", "budget", "transaction_gap")
"""Off where -w or -c is given: the user has said what too much is."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        COMMAND,
        epilog="Example: slots check orders -w 10GB -c 50GB\n\n"
        "Exit codes: 0 ok, 1 warning, 2 critical, 3 it could not measure.",
    )(on_server(_check))


def _check(  # noqa: PLR0913 - an argument an option
    target: Target,
    names: Names = None,
    *,
    warning: Annotated[
        str | None,
        typer.Option(
            "-w",
            "--warning",
            metavar="SIZE|SHARE",
            help="Retained WAL, 10GB, or the share used of what is allowed, 50%.",
        ),
    ] = None,
    critical: Annotated[
        str | None,
        typer.Option("-c", "--critical", metavar="SIZE|SHARE", help="Likewise."),
    ] = None,
    time_limit: Annotated[
        str,
        typer.Option(
            "-t",
            "--timeout",
            metavar="TIME",
            help="To connect, and again to answer.",
        ),
    ] = "10s",
    is_failover: Annotated[
        bool,
        typer.Option(
            "--failover", help="Check instead that failover slots survive a switchover."
        ),
    ] = False,
    standby: Annotated[
        list[str] | None,
        typer.Option("--standby", metavar="DSN", help="A standby; again for another."),
    ] = None,
    limit: LimitTexts = None,
) -> None:
    """Check slots for a monitoring system: one line, and an exit code of 0 to 3."""
    limits = _limits(limit, warning, critical)
    limit_s = read_seconds(time_limit, "-t")
    if is_failover:
        found, shown = asyncio.run(
            failover_findings(target, standby or [], names, limit_s=limit_s)
        )
        raise typer.Exit(_report(found, shown, ""))
    if standby:
        raise UsageMistake("--standby goes with --failover")
    reading, history = asyncio.run(look(target, sample_s=0, limit_s=limit_s))
    slots, missing = _named(reading, names)
    pairs = [(one, "server") for one in server_health(reading, limits)] + missing
    for slot in slots:
        trend = history.trend(slot)
        pairs += [(one, slot.name) for one in health(reading, slot, trend, limits)]
    data = " ".join(_performance(reading, slot, limits) for slot in slots)
    raise typer.Exit(_report(pairs, _all_well(reading, slots), data))


def _limits(
    texts: list[str] | None, warning: str | None, critical: str | None
) -> Limits:
    if warning is None and critical is None:
        return read_limits(texts)
    limits = read_limits(texts, dict.fromkeys(_SIZE_LIMITS, "off"))
    for option, text in (("warning", warning), ("critical", critical)):
        if text is not None:
            limits = _with_level(limits, option, text)
    if any(_is_reversed(one) for one in (limits.retained, limits.budget)):
        raise UsageMistake("-w is more than -c")
    return limits


def _is_reversed(threshold: Threshold) -> bool:
    warning, critical = threshold.warning, threshold.critical
    return warning is not None and critical is not None and warning > critical


def _with_level(limits: Limits, option: str, text: str) -> Limits:
    is_share = text.strip().endswith("%")
    try:
        value = parse_share(text) if is_share else parse_bytes(text)
    except ValueError as exc:
        raise UsageMistake(f"-{option[0]}: {exc}") from None
    before = limits.budget if is_share else limits.retained
    if option == "warning":
        threshold = replace(before, warning=value)
    else:
        threshold = replace(before, critical=value)
    if is_share:
        return replace(limits, budget=threshold)
    return replace(limits, retained=threshold)


def _named(
    reading: Reading, names: Sequence[str] | None
) -> tuple[list[Slot], list[tuple[Finding, str]]]:
    if not names:
        return list(reading.slots), []
    slots = [slot for name in names if (slot := reading.slot(name)) is not None]
    there = {slot.name for slot in slots}
    missing = [
        (
            Finding(
                kind=Kind.MISSING,
                level=Level.CRITICAL,
                text="does not exist: what is committed now is not kept",
                remedy=f"`slots create {name}`, or take it off the check",
            ),
            name,
        )
        for name in names
        if name not in there
    ]
    return slots, missing


def _report(found: Iterable[tuple[Finding, str]], well: str, data: str) -> int:
    worst_first = sorted(found, key=lambda pair: -pair[0].level)
    level = worst_first[0][0].level if worst_first else Level.OK
    text = "; ".join(
        f"{one.level.word}: {subject}: {one.text} ({one.remedy})"
        for one, subject in worst_first
    )
    # The bar begins the numbers, and a line break the next plugin's output.
    line = " ".join((text or well).replace("|", "/").split())
    typer.echo(f"{TITLE} {level.name} - {line}" + (f" | {data}" if data else ""))
    return int(level)


def _all_well(reading: Reading, slots: Sequence[Slot]) -> str:
    if not slots:
        return "there are no replication slots"
    sizes = {slot.name: reading.retained_bytes(slot) or 0 for slot in slots}
    name = max(sizes, key=lambda one: sizes[one])
    count = f"{len(slots)} slots" if len(slots) > 1 else "1 slot"
    return f"{count}, most WAL retained by {name}: {show_bytes(sizes[name])}"


def _performance(reading: Reading, slot: Slot, limits: Limits) -> str:
    """Return a slot's numbers: value;warning;critical;minimum."""
    retained = reading.retained_bytes(slot)
    if retained is None:
        return f"'{slot.name}_retained'=U"
    bounds, scale = limits.retained, 1
    left = budget(reading, slot, limits)
    if left is not None and bounds == Threshold():
        bounds, scale = limits.budget, retained + left.safe_bytes
    first, second = (
        "" if one is None else f"{one * scale:.0f}"
        for one in (bounds.warning, bounds.critical)
    )
    data = f"'{slot.name}_retained'={retained}B;{first};{second};0;"
    lag = reading.lag_bytes(slot)
    return data if lag is None else f"{data} '{slot.name}_lag'={lag}B;;;0;"
