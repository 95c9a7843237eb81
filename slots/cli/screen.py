"""The picture of ``slots watch``: tables, small plots, alarms."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from slots.cli.tables import COLOURS, slot_table
from slots.state import health, worst
from slots.state.units import show_bytes, show_rate, show_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import ConsoleDimensions, RenderableType

    from slots.alarms import Alarm
    from slots.state import History, Limits, Reading, Slot
    from slots.watch import View

_BARS: Final = "▁▂▃▄▅▆▇█"
_LONGEST_PLOT: Final = 60
_PLOT_SHARE: Final = 5
"""Two plots, their numbers and the name share the width."""


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
        yield (
            f"{at} {slot.name} {level.word}"
            f" {slot.wal_status.value if slot.wal_status else '-'}"
            f" {'active' if slot.active else 'inactive'}"
            f" retained={show_bytes(reading.retained_bytes(slot))}"
            f" lag={show_bytes(reading.lag_bytes(slot))}"
            f" gap={show_bytes(reading.gap_bytes(slot))}"
            f" growth={show_rate(trend.growth_bytes_s)}"
        ).replace(" B", "B")


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
    bars = min(_LONGEST_PLOT, width // _PLOT_SHARE)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for title in ("slot", "retained", "", "growth", ""):
        table.add_column(title, no_wrap=True)
    for slot in slots:
        samples = history.samples(slot.name)
        pairs = itertools.pairwise(samples)
        rates = [
            (after.retained - before.retained) / (after.at_s - before.at_s)
            for before, after in pairs
            if after.at_s > before.at_s
        ]
        span = samples[-1].at_s - samples[0].at_s if samples else 0.0
        table.add_row(
            slot.name,
            plot([one.retained for one in samples], bars),
            f"{show_bytes(samples[-1].retained)} in {show_seconds(span)}"
            if samples
            else "-",
            plot(rates, bars),
            show_rate(rates[-1]) if rates else "-",
        )
    return table


def _alarm_lines(alarms: Sequence[Alarm]) -> list[Text]:
    lines = []
    for alarm in alarms:
        line = Text()
        line.append(f"{alarm.level.word} ", style=f"bold {COLOURS[alarm.level]}")
        line.append(f"{alarm.kind} ", style="bold")
        subject = f"{alarm.slot_name}: " if alarm.slot_name else ""
        line.append(f"{subject}{alarm.text} (since {alarm.since:%H:%M:%S})")
        line.append(f" -> {alarm.remedy}", style="cyan")
        lines.append(line)
    return lines or [Text("no alarms", style="green")]
