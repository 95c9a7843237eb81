"""Tables as people read them: on a terminal, and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Percentiles, Spread

NOTHING = "-"


@dataclass(slots=True, kw_only=True)
class Table:
    """A titled table; the first column is text, the others are numbers.

    Attributes:
        title: what it shows.
        head: the columns' names.
        rows: cells as they are printed, one for each column.
        notes: sentences below it.

    """

    title: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row; raise ValueError when it is not as wide as the head."""
        if len(cells) != len(self.head):
            raise ValueError(f"{len(cells)} cells under {len(self.head)} columns")
        self.rows.append(cells)

    def as_text(self) -> str:
        """Return it for a terminal, columns aligned."""
        widths = [max(map(len, column)) for column in zip(*self._lines(), strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in self._lines()
        ]
        return "\n".join([self.title, *lines, *self.notes]) + "\n"

    def as_markdown(self) -> str:
        """Return it as a section of a Markdown document."""
        rule = [":--" if not number else "--:" for number in range(len(self.head))]
        lines = [
            "| " + " | ".join(_escaped(cell) for cell in row) + " |"
            for row in (self.head, rule, *self.rows)
        ]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"## {self.title}\n", *lines, *notes]) + "\n"

    def _lines(self) -> list[Sequence[str]]:
        return [self.head, *self.rows]


def number(value: float) -> str:
    """Write a number with three significant digits, or whole with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def around(spread: Spread | None) -> str:
    """Write a median with the extremes behind it."""
    if spread is None:
        return NOTHING
    low, middle, high = map(number, (spread.low, spread.median, spread.high))
    return f"{middle} ({low}..{high})"


def mebibytes(value: float) -> str:
    """Write bytes as MiB."""
    return f"{value / 2**20:.1f}"


def milliseconds(times: Percentiles) -> tuple[str, str, str]:
    """Write p50, p99 and the longest, each in milliseconds."""
    return (
        f"{times.p50 * 1e3:.2f}",
        f"{times.p99 * 1e3:.2f}",
        f"{times.longest * 1e3:.2f}",
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
