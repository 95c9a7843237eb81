"""Lines over time as an SVG: rate above, memory below, one pair a scenario."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from bench.figures import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDTH: Final = 460
_HEIGHT: Final = 170
_LEFT: Final = 70
_RIGHT: Final = 20
_TOP: Final = 34
_BOTTOM: Final = 30
_LEGEND: Final = 24
_TICKS: Final = 4
_POINTS: Final = 200
_COLOURS: Final = ("#0b6e99", "#d1495b", "#66a182", "#edae49", "#6c5b7b", "#5c5c5c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a panel: its name and (seconds, value)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what is drawn, with its unit.
        lines: at least one; a name has the same colour in every panel.

    """

    title: str
    lines: Sequence[Line]


def draw(panels: Sequence[Sequence[Panel]]) -> str:
    """Return an SVG of rows of panels; every row is as long as it likes."""
    names = list(
        dict.fromkeys(line.name for row in panels for one in row for line in one.lines)
    )
    colours = {
        name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)
    }
    width = _WIDTH * max((len(row) for row in panels), default=1)
    height = _LEGEND + _HEIGHT * len(panels)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
            f' height="{height}" viewBox="0 0 {width} {height}"'
            ' font-family="sans-serif" font-size="11">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(colours),
    ]
    for down, row in enumerate(panels):
        for across, panel in enumerate(row):
            parts.append(
                f'<g transform="translate({across * _WIDTH},'
                f'{_LEGEND + down * _HEIGHT})">'
            )
            parts.extend(_panel(panel, colours))
            parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def round_limit(highest: float) -> float:
    """Return the next 1, 2, 2.5 or 5 times a power of ten that is not below."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(
        step * power for step in (1, 2, 2.5, 5, 10) if step * power >= highest * 0.9999
    )


def _legend(colours: dict[str, str]) -> Iterator[str]:
    left = _LEFT
    for name, colour in colours.items():
        yield f'<rect x="{left}" y="8" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 17}" y="18">{escape(name)}</text>'
        left += 40 + 7 * len(name)


def _panel(panel: Panel, colours: dict[str, str]) -> Iterator[str]:
    points = [point for line in panel.lines for point in line.points]
    longest = max((seconds for seconds, _ in points), default=1.0) or 1.0
    limit = round_limit(max((value for _, value in points), default=1.0))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    yield f'<text x="{_LEFT}" y="{_TOP - 10}">{escape(panel.title)}</text>'
    for tick in range(_TICKS + 1):
        y = _TOP + high - high * tick / _TICKS
        right = _WIDTH - _RIGHT
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
        label = f"{limit * tick / _TICKS:,g}"
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        x = _LEFT + wide * tick / _TICKS
        label = f"{longest * tick / _TICKS:.3g} s"
        yield (
            f'<text x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle"'
            f' fill="#666">{label}</text>'
        )
    for line in panel.lines:
        path = " ".join(
            f"{_LEFT + wide * seconds / longest:.1f},"
            f"{_TOP + high - high * min(value / limit, 1.0):.1f}"
            for seconds, value in thinned(line.points, _POINTS)
        )
        colour = colours[line.name]
        yield (
            f'<polyline points="{path}" fill="none" stroke="{colour}"'
            ' stroke-width="1.5"/>'
        )
