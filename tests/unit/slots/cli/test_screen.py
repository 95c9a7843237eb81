"""The picture: plots that keep their peaks, columns that fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, ConsoleDimensions

from slots.alarms import Alarms
from slots.cli import screen, tables
from slots.errors import ServerUnavailable
from slots.state import History, Limits, Reading, WalStatus
from slots.state.units import MB
from slots.watch import View
from tests.slot_readings import BEGIN, at, behind, idle, reading, slot

LIMITS = Limits()


def look(*readings: Reading) -> View:
    history, alarms = History(), Alarms(LIMITS)
    for one in readings:
        alarms.observe(one, history)
    return View(
        reading=readings[-1],
        error=None,
        history=history,
        alarms=alarms.up,
        changes=(),
    )


def drawn(view: View, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    size = ConsoleDimensions(width, 40)
    with console.capture() as capture:
        console.print(
            screen.picture(view, LIMITS, server="db as ops", names=(), size=size)
        )
    return capture.get().splitlines()


def test_a_plot_is_scaled_to_its_peak() -> None:
    assert screen.plot([0, 50, 100], 10) == "▁▅█"
    assert screen.plot([], 10) == ""
    assert screen.plot([0, 0], 10) == "▁▁"
    assert screen.plot([-5, 10], 10) == "▁█"


def test_a_plot_that_is_too_long_keeps_every_peak() -> None:
    values = [0.0] * 1000
    values[777] = 1.0

    assert screen.plot(values, 20).count("█") == 1
    assert len(screen.plot(values, 20)) == 20


@pytest.mark.parametrize("width", [80, 160])
def test_everything_fits_the_terminal(width: int) -> None:
    slots = (
        behind(600 * MB, active_address="10.0.0.1"),
        idle("billing_outbox", inactive_since=at(-5000)),
        slot("made", confirmed_flush_lsn=None),
        idle("gone", wal_status=WalStatus.LOST, invalidation_reason="wal_removed"),
        slot("standby", slot_type="physical", plugin=None, database=None),
    )
    view = look(
        reading(*slots),
        reading(*slots, seconds=90, wal=BEGIN + 50 * MB),
    )

    lines = drawn(view, width)

    assert max(len(line.rstrip()) for line in lines) <= width
    assert lines[0].startswith("db as ops  12:01:30 UTC")
    for name in ("a", "billing_outbox", "made", "gone", "standby"):
        assert any(line.startswith(name) for line in lines)
    assert any("lost" in line for line in lines)
    assert any("█" in line for line in lines)
    assert any("`slots why NAME`" in line for line in lines)


def test_a_server_without_slots_or_trouble_says_so() -> None:
    assert "there are no replication slots" in "".join(drawn(look(reading()), 80))
    assert "no alarms" in "".join(drawn(look(reading(slot())), 80))


def test_a_failed_reading_shows_the_reason() -> None:
    view = replace(look(reading(slot())), reading=None, error=ServerUnavailable("away"))

    assert "db as ops: away" in "".join(drawn(view, 80))
    assert list(screen.plain_lines(view, LIMITS, ())) == []


def test_plain_lines_are_one_a_slot() -> None:
    view = look(reading(behind(30 * MB, 5 * MB), idle("b", wal_status=None)))

    first, second = screen.plain_lines(view, LIMITS, ())
    assert first.split() == [
        "2026-12-01T12:00:00Z",
        "a",
        "ok",
        "reserved",
        "active",
        "retained=35MB",
        "lag=30MB",
        "gap=5MB",
        "growth=-",
    ]
    assert second.split()[1:5] == ["b", "ok", "-", "inactive"]
    (none,) = screen.plain_lines(look(reading()), LIMITS, ())
    assert none.endswith("there are no replication slots")
    assert len(list(screen.plain_lines(view, LIMITS, ("a",)))) == 1


def test_one_slot_is_shown_with_the_verdict_in_words() -> None:
    history = History()
    console = Console(width=100, color_system=None)
    for one in (behind(900 * MB, synced=True, failover=True), slot(temporary=True)):
        view = reading(one)
        with console.capture() as capture:
            console.print(tables.portrait(view, one, history, LIMITS))
        shown = capture.get()
        assert "verdict:" in shown
        assert ("verdict: critical" in shown) is (one.synced is True)


def test_a_slot_that_holds_nothing_says_so() -> None:
    one = slot()
    look_at = replace(
        reading(one), server=replace(reading().server, sees_sessions=False)
    )

    lines = [str(x) for x in tables.cause_lines(look_at, one, History(), LIMITS)]

    assert "  nobody holds anything to speak of" in lines
    assert any("GRANT pg_monitor TO ops" in line for line in lines)
