"""Readings for people: tables as wide as the terminal, colour by verdict."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from slots.state import (
    Level,
    budget,
    causes,
    health,
    server_health,
    stake,
    time_to_loss_s,
    worst,
)
from slots.state.causes import describe_consumer
from slots.state.units import (
    show_briefly,
    show_bytes,
    show_count,
    show_rate,
    show_seconds,
    show_share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import RenderableType

    from slots.state import Finding, History, Limits, Reading, Slot

COLOURS: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.CRITICAL: "red"}
_WIDE: Final = 120
_PIPE_WIDTH: Final = 200
"""What reads from a pipe has no width, and wants nothing cut off."""


def console() -> Console:
    """Return a console for stdout."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, width=width, soft_wrap=not sys.stdout.isatty())


def slot_table(
    reading: Reading,
    slots: Sequence[Slot],
    history: History,
    limits: Limits,
    *,
    width: int,
) -> Table:
    """Return one row a slot, with the columns that the width has room for."""
    columns = _WIDE_COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    gap = 2 if width >= _WIDE else 1
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold", pad_edge=False)
    for title in columns:
        is_number = title in _NUMBERS
        table.add_column(
            title,
            justify="right" if is_number else "left",
            no_wrap=title != "slot",
            overflow="fold" if title == "slot" else "ellipsis",
        )
    for slot in slots:
        row = _Row(reading, slot, history, limits)
        level = worst(row.findings)
        cells = [Text(make(row)) for make in columns.values()]
        cells[0].stylize(f"bold {COLOURS[level]}")
        if "verdict" in columns:
            cells[list(columns).index("verdict")].stylize(COLOURS[level])
        table.add_row(*cells)
    return table


def finding_lines(
    reading: Reading, slots: Iterable[Slot], history: History, limits: Limits
) -> list[Text]:
    """Return a line a slot that is not well, with the worst that is found."""
    found = [(one, "server", "") for one in server_health(reading, limits)]
    for slot in slots:
        trend = history.trend(slot)
        judged = sorted(
            health(reading, slot, trend, limits), key=lambda one: -one.level
        )
        if judged:
            rest = len(judged) - 1
            more = f" (+{rest} more: `slots show {slot.name}`)" if rest else ""
            found.append((judged[0], slot.name, more))
    found.sort(key=lambda entry: -entry[0].level)
    return [_finding_line(one, subject).append(more) for one, subject, more in found]


def portrait(
    reading: Reading, slot: Slot, history: History, limits: Limits
) -> RenderableType:
    """Return everything about one slot, the verdict in words, and the remedy."""
    trend = history.trend(slot)
    left = budget(reading, slot, limits)
    # A promoted server still says of it that it was synced.
    is_standbys_copy = reading.server.is_in_recovery and slot.synced
    pairs = {
        "slot": slot.name,
        "kind": f"{slot.slot_type}{' temporary' if slot.temporary else ''}"
        + (f", {slot.plugin}, database {slot.database}" if slot.is_logical else ""),
        "consumer": _consumer(slot, trend_s=trend.inactive_s),
        "wal_status": _status(slot),
        "restart_lsn": str(slot.restart_lsn or "-"),
        "confirmed": str(slot.confirmed_flush_lsn or "-"),
        "server's WAL": str(reading.server.wal_position or "-"),
        "retained": f"{show_bytes(reading.retained_bytes(slot))} = lag"
        f" {show_bytes(reading.lag_bytes(slot))} + transaction gap"
        f" {show_bytes(reading.gap_bytes(slot))}",
        "left": "no limit"
        if left is None
        else f"{show_bytes(left.safe_bytes)} ({show_share(left.share)} used)",
        "growth": show_rate(trend.growth_bytes_s),
        "time to loss": show_seconds(time_to_loss_s(left, trend)),
        "xmin age": f"{show_count(slot.xmin_age)} (catalog"
        f" {show_count(slot.catalog_xmin_age)}) transactions",
        "two-phase": _flag(slot.two_phase),
        "failover": _flag(slot.failover)
        + (", a copy from the primary" if is_standbys_copy else ""),
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, value)
    found = health(reading, slot, trend, limits)
    level = worst(found)
    verdict = Text(f"\nverdict: {level.word}", style=f"bold {COLOURS[level]}")
    return Group(grid, verdict, *(_finding_line(one) for one in found))


def cause_lines(
    reading: Reading, slot: Slot, history: History, limits: Limits
) -> list[Text]:
    """Return who holds the WAL of a slot, what is at stake, and what to do."""
    trend = history.trend(slot)
    lines = [Text(f"{slot.name}: {stake(reading, slot, trend, limits)}", style="bold")]
    found = causes(reading, slot, trend)
    for cause in found:
        held = f"{show_bytes(cause.held_bytes)}: " if cause.held_bytes else ""
        lines.append(Text(f"  {held}{cause.text}"))
        lines.append(Text(f"    -> {cause.remedy}", style="cyan"))
    if not found:
        lines.append(Text("  nobody holds anything to speak of", style="green"))
    if not reading.server.sees_sessions:
        lines.append(
            Text(
                f"  (role {reading.server.role} sees no details of other sessions:"
                f" GRANT pg_monitor TO {reading.server.role})",
                style="dim",
            )
        )
    return lines


class _Row:
    """What a row's cells are made from."""

    __slots__ = ("findings", "left", "reading", "slot", "trend")

    def __init__(
        self, reading: Reading, slot: Slot, history: History, limits: Limits
    ) -> None:
        self.reading = reading
        self.slot = slot
        self.trend = history.trend(slot)
        self.left = budget(reading, slot, limits)
        self.findings = health(reading, slot, self.trend, limits)


_NARROW_COLUMNS: Final[dict[str, Callable[[_Row], str]]] = {
    "slot": lambda row: row.slot.name,
    "consumer": lambda row: _brief_consumer(row.slot, row.trend.inactive_s),
    "status": lambda row: row.slot.wal_status.value if row.slot.wal_status else "-",
    "retained": lambda row: show_bytes(row.reading.retained_bytes(row.slot)),
    "lag": lambda row: show_bytes(row.reading.lag_bytes(row.slot)),
    "left": lambda row: show_bytes(row.left.safe_bytes if row.left else None),
    "loss in": lambda row: show_briefly(time_to_loss_s(row.left, row.trend)),
    "verdict": lambda row: worst(row.findings).word,
}
_WIDE_COLUMNS: Final[dict[str, Callable[[_Row], str]]] = {
    "slot": lambda row: row.slot.name,
    "plugin": lambda row: row.slot.plugin or row.slot.slot_type,
    "database": lambda row: row.slot.database or "-",
    "consumer": lambda row: _compact_consumer(row.slot, row.trend.inactive_s),
    "status": lambda row: _status(row.slot),
    "retained": lambda row: show_bytes(row.reading.retained_bytes(row.slot)),
    "lag": lambda row: show_bytes(row.reading.lag_bytes(row.slot)),
    "gap": lambda row: show_bytes(row.reading.gap_bytes(row.slot)),
    "left": lambda row: show_bytes(row.left.safe_bytes if row.left else None),
    "xmin age": lambda row: show_count(row.slot.catalog_xmin_age),
    "growth": lambda row: show_rate(row.trend.growth_bytes_s),
    "loss in": lambda row: show_seconds(time_to_loss_s(row.left, row.trend)),
    "verdict": lambda row: worst(row.findings).word,
}
_NUMBERS: Final = frozenset(
    {"retained", "lag", "gap", "left", "xmin age", "growth", "loss in"}
)


def _finding_line(finding: Finding, subject: str = "") -> Text:
    line = Text()
    line.append(f"{finding.level.word}: ", style=f"bold {COLOURS[finding.level]}")
    line.append(f"{subject}: {finding.text}" if subject else finding.text)
    line.append(f" -> {finding.remedy}", style="cyan")
    return line


def _brief_consumer(slot: Slot, inactive_s: float | None) -> str:
    if slot.active:
        return slot.active_application or f"pid {slot.active_pid}"
    return "none" if inactive_s is None else f"none {show_briefly(inactive_s)}"


def _short_consumer(slot: Slot, inactive_s: float | None) -> str:
    if slot.active:
        return slot.active_application or f"pid {slot.active_pid}"
    return "none" if inactive_s is None else f"none {show_seconds(inactive_s)}"


def _compact_consumer(slot: Slot, inactive_s: float | None) -> str:
    if not slot.active:
        return _short_consumer(slot, inactive_s)
    address = f" {slot.active_address}" if slot.active_address else ""
    return f"{slot.active_application or '?'}{address} pid {slot.active_pid}"


def _consumer(slot: Slot, *, trend_s: float | None) -> str:
    if slot.active:
        return describe_consumer(slot)
    return _short_consumer(slot, trend_s)


def _status(slot: Slot) -> str:
    if slot.is_being_made:
        return "being made"
    if slot.is_lost:
        return (
            f"lost ({slot.invalidation_reason})" if slot.invalidation_reason else "lost"
        )
    return slot.wal_status.value if slot.wal_status else "-"


def _flag(value: bool | None) -> str:  # noqa: FBT001 - a cell's value
    return "-" if value is None else ("yes" if value else "no")
