"""The picture of ``slots watch``: tables, small plots, alarms."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from slots.cli.tables import COLOURS, slot_table
from slots.state import health, worst
from slots.state.units import show_briefly, show_bytes, show_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import ConsoleDimensions, RenderableType

    from slots.alarms import Alarm
    from slots.state import History, Limits, Reading, Slot
    from slots.state.trend import Sample
    from slots.watch import View

_BARS: Final = "▁▂▃▄▅▆▇█"
_LONGEST_PLOT: Final = 60
_SHORTEST_PLOT: Final = 8
_NUMBERS: Final = 26
"""What the numbers beside two plots take of the width."""


def picture(
    view: View,
    limits: Limits,
    *,
    server: str,
    names: Collection[str],
    size: ConsoleDimensions,
) -> RenderableType:
    """Return what one poll has shown, for a terminal of a size."""
    if view.reading is None:
        reason = Text(f"{server}: {view.error}", style="bold red")
        return Group(reason, *_alarm_lines(view.alarms))
    slots = watched(view.reading, names)
    title = Text(f"{server}  {view.reading.server.at:%H:%M:%S} UTC", style="bold")
    if not slots:
        return Group(title, Text("there are no replication slots"))
    return Group(
        title,
        slot_table(view.reading, slots, view.history, limits, width=size.width),
        Text(),
        _plots(slots, view.history, width=size.width),
        Text(),
        *_alarm_lines(view.alarms),
    )


def plain_lines(view: View, limits: Limits, names: Collection[str]) -> Iterator[str]:
    """Return a line a slot, for a pipe."""
    if view.reading is None:
        return
    reading, at = view.reading, f"{view.reading.server.at:%Y-%m-%dT%H:%M:%SZ}"
    if not reading.slots:
        yield f"{at} there are no replication slots"
    for slot in watched(reading, names):
        trend = view.history.trend(slot)
        level = worst(health(reading, slot, trend, limits))
        numbers = {
            "retained": show_bytes(reading.retained_bytes(slot)),
            "lag": show_bytes(reading.lag_bytes(slot)),
            "gap": show_bytes(reading.gap_bytes(slot)),
            "growth": show_rate(trend.growth_bytes_s),
        }
        words = [
            at,
            slot.name,
            level.word,
            slot.wal_status.value if slot.wal_status else "-",
            "active" if slot.active else "inactive",
            *(f"{name}={text.replace(' ', '')}" for name, text in numbers.items()),
        ]
        yield " ".join(words)


def watched(reading: Reading, names: Collection[str]) -> list[Slot]:
    """Return the slots of these names that are there; all for none."""
    return [slot for slot in reading.slots if not names or slot.name in names]


def plot(values: Sequence[float], width: int) -> str:
    """Draw values as bars, the latest on the right, scaled to the largest."""
    shown = _thinned(values, width)
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    steps = len(_BARS) - 1
    return "".join(_BARS[round(max(0.0, value) / top * steps)] for value in shown)


def _thinned(values: Sequence[float], width: int) -> list[float]:
    """Keep the largest of every so many: a peak must not fall between two bars."""
    if len(values) <= width:
        return list(values)
    bounds = [len(values) * number // width for number in range(width + 1)]
    return [max(values[start:end]) for start, end in itertools.pairwise(bounds)]


def _plots(slots: Sequence[Slot], history: History, *, width: int) -> Table:
    spans = [_span_s(history.samples(slot.name)) for slot in slots]
    over = show_briefly(max(spans, default=0.0))
    names = max(len(slot.name) for slot in slots)
    bars = max(_SHORTEST_PLOT, min(_LONGEST_PLOT, (width - names - _NUMBERS) // 2))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for title in ("slot", f"retained, {over}", "", f"growth, {over}", ""):
        table.add_column(title, no_wrap=True, justify="left" if title else "right")
    for slot in slots:
        samples = history.samples(slot.name)
        rates = [
            (after.retained - before.retained) / (after.at_s - before.at_s)
            for before, after in itertools.pairwise(samples)
            if after.at_s > before.at_s
        ]
        table.add_row(
            slot.name,
            plot([one.retained for one in samples], bars),
            show_bytes(samples[-1].retained if samples else None),
            plot(rates, bars),
            show_rate(rates[-1] if rates else None),
        )
    return table


def _span_s(samples: Sequence[Sample]) -> float:
    return samples[-1].at_s - samples[0].at_s if samples else 0.0


def _alarm_lines(alarms: Sequence[Alarm]) -> list[Text]:
    """Return a line an alarm, cut where the terminal ends."""
    if not alarms:
        return [Text("no alarms", style="green")]
    lines = []
    for alarm in alarms:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{alarm.level.word} ", style=f"bold {COLOURS[alarm.level]}")
        subject = f"{alarm.slot_name}: " if alarm.slot_name else ""
        line.append(f"{alarm.since:%H:%M:%S} {subject}{alarm.text}")
        lines.append(line)
    hint = "`slots why NAME` says what to do"
    return [*lines, Text(hint, style="dim")]
