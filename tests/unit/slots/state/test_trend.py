"""Rates, forecasts and how long a slot has stood still, from readings over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slots.lsn import Lsn
from slots.state import (
    Budget,
    History,
    Limits,
    Slot,
    Trend,
    WalStatus,
    budget,
    is_replaced,
    time_to_loss_s,
)
from slots.state.units import GB, MB
from tests.slot_readings import BEGIN, at, behind, idle, reading, slot

RATE = 1 * MB


def writes(history: History, one: Slot, *moments: float, **changes: Any) -> Slot:
    """Observe a slot that stands still while the server writes 1 MB a second."""
    for moment in moments:
        history.observe(
            reading(one, seconds=moment, wal=BEGIN + round(moment * RATE), **changes)
        )
    return one


def test_a_slot_that_nobody_reads_grows_as_the_wal_does() -> None:
    history = History(is_continuous=False)

    one = writes(history, idle(), 0, 1)

    assert history.trend(one).growth_bytes_s == RATE
    assert history.trend(one).is_settled


def test_a_slot_that_is_read_is_forecast_after_a_minute_only() -> None:
    history = History()

    one = writes(history, slot(), 0, 30)
    assert history.trend(one).growth_bytes_s == RATE
    assert not history.trend(one).is_settled

    writes(history, one, 61)
    assert history.trend(one).is_settled


def test_a_consumer_that_reconnects_gives_no_forecast() -> None:
    history = History()
    writes(history, slot(), 0, 10, 20)

    gone = writes(history, idle(inactive_since=at(25)), 30)

    assert not history.trend(gone).is_settled


def test_a_slot_that_keeps_up_does_not_grow() -> None:
    history = History()
    one = slot()
    for moment in (0, 30, 60, 90):
        wal = BEGIN + moment * RATE
        one = slot(restart_lsn=Lsn(wal), confirmed_flush_lsn=Lsn(wal))
        history.observe(reading(one, seconds=moment, wal=wal))

    assert history.trend(one).growth_bytes_s == 0


def test_the_faster_of_five_minutes_and_an_hour_counts() -> None:
    history = History()
    one = idle(inactive_since=at(0))
    wal = BEGIN
    for moment in range(0, 3600, 10):
        wal += (20 if moment < 1800 else 1) * MB
        history.observe(reading(one, seconds=moment, wal=wal))

    over_an_hour = history.trend(one).growth_bytes_s
    assert over_an_hour == pytest.approx(1.05 * MB, rel=0.01)

    for moment in range(3600, 3900, 10):
        wal += 50 * MB
        history.observe(reading(one, seconds=moment, wal=wal))
    assert history.trend(one).growth_bytes_s == pytest.approx(5 * MB, rel=0.01)


def test_one_reading_gives_no_rate() -> None:
    history = History()

    one = writes(history, idle(), 0)

    assert history.trend(one).growth_bytes_s is None
    assert history.trend(slot("never seen")) == Trend()
    assert History().trend(one) == Trend()


def test_two_readings_at_once_give_no_rate() -> None:
    history = History()

    one = writes(history, idle(), 0, 0.1)

    assert history.trend(one).growth_bytes_s is None


def test_readings_are_thinned_and_forgotten_after_an_hour() -> None:
    history = History()

    writes(history, idle(), *(number / 10 for number in range(600)))
    assert len(history.samples("a")) == 60
    writes(history, idle(), *range(60, 8000, 5))

    samples = history.samples("a")
    assert len(samples) < 400
    assert samples[-1].at_s - samples[0].at_s < 3700
    assert history.samples("b") == ()


def test_a_slot_that_is_gone_is_forgotten() -> None:
    history = History()
    one = writes(history, idle(), 0, 1)

    history.observe(reading(seconds=2, wal=BEGIN + 2 * MB))

    assert history.trend(one) == Trend()


def test_a_slot_can_be_forgotten() -> None:
    history = History()
    one = writes(history, idle(), 0, 1)

    history.forget("a")
    history.forget("never seen")

    assert history.trend(one) == Trend()


@pytest.mark.parametrize(
    "later", [{"seconds": -5, "wal": BEGIN + 99 * MB}, {"seconds": 5, "wal": BEGIN}]
)
def test_a_clock_or_a_wal_that_goes_back_begins_anew(later: dict[str, Any]) -> None:
    history = History()
    one = writes(history, idle(), 0, 1)

    history.observe(reading(one, **later))

    assert history.trend(one).growth_bytes_s is None


def test_a_server_that_has_replayed_nothing_gives_no_sample() -> None:
    history = History()
    one = idle()

    history.observe(reading(one, wal=None))
    history.observe(reading(one, seconds=5, wal=None))

    assert history.trend(one).growth_bytes_s is None
    assert history.samples("a") == ()


def test_since_when_a_slot_is_inactive_the_server_knows_best() -> None:
    history = History()

    told = writes(history, idle(inactive_since=at(-100)), 0)
    assert history.trend(told).inactive_s == 100

    seen = writes(history, idle(), 10, 15)
    assert history.trend(seen).inactive_s == 15
    assert history.trend(writes(history, slot(), 16)).inactive_s is None
    assert history.trend(writes(history, idle(), 17, 19)).inactive_s == 2


def test_a_single_look_does_not_know_since_when() -> None:
    history = History(is_continuous=False)

    one = writes(history, idle(), 0, 1)

    assert history.trend(one).inactive_s is None


def test_a_consumer_behind_that_confirms_nothing_is_stuck() -> None:
    history = History()

    one = writes(history, behind(20 * MB), 0, 10, 70)

    trend = history.trend(one)
    assert trend.stuck_s == 70
    assert trend.is_settled
    assert trend.growth_bytes_s == RATE


def test_a_consumer_becomes_stuck_when_it_falls_behind() -> None:
    history = History()

    one = writes(history, slot(), 0, 10)
    assert history.trend(one).stuck_s is None
    writes(history, one, 20, 30)

    assert history.trend(one).stuck_s == 10


def test_a_consumer_that_confirms_something_is_not_stuck() -> None:
    history = History()
    writes(history, behind(40 * MB), 0, 10)

    one = writes(history, behind(30 * MB), 20)

    assert history.trend(one).stuck_s == 0
    assert history.trend(writes(history, idle(), 21)).stuck_s is None


def test_the_servers_budget_is_its_safe_wal_size() -> None:
    one = behind(250 * MB)

    left = budget(reading(one), one, Limits(disk=1))

    assert left == Budget(safe_bytes=750 * MB, share=0.25, is_of_server=True)


def test_a_budget_can_be_overdrawn() -> None:
    one = replace(behind(100 * MB), safe_wal_bytes=-20 * MB)
    empty = replace(slot(), safe_wal_bytes=0)

    over = budget(reading(one), one, Limits())

    assert over is not None
    assert over.share == 1.25
    assert budget(reading(empty), empty, Limits()) == Budget(
        safe_bytes=0, share=1.0, is_of_server=True
    )


def test_without_a_limit_of_the_server_the_disk_is_the_budget() -> None:
    one = replace(behind(250 * MB), safe_wal_bytes=None)

    assert budget(reading(one), one, Limits()) is None
    assert budget(reading(one), one, Limits(disk=1 * GB)) == Budget(
        safe_bytes=774 * MB, share=250 / 1024, is_of_server=False
    )


def test_a_lost_slot_has_no_budget() -> None:
    one = slot(wal_status=WalStatus.LOST)

    assert budget(reading(one), one, Limits(disk=1 * GB)) is None


LEFT = Budget(safe_bytes=600 * MB, share=0.4, is_of_server=True)


@pytest.mark.parametrize(
    ("left", "trend", "seconds"),
    [
        (None, Trend(growth_bytes_s=RATE, is_settled=True), None),
        (LEFT, Trend(growth_bytes_s=RATE, is_settled=True), 600),
        (LEFT, Trend(growth_bytes_s=RATE), None),
        (LEFT, Trend(growth_bytes_s=0.0, is_settled=True), None),
        (LEFT, Trend(growth_bytes_s=-1.0, is_settled=True), None),
        (LEFT, Trend(is_settled=True), None),
        (replace(LEFT, safe_bytes=-1), Trend(), 0),
    ],
)
def test_the_time_to_loss_is_what_is_left_at_the_present_rate(
    left: Budget | None, trend: Trend, seconds: float | None
) -> None:
    assert time_to_loss_s(left, trend) == seconds


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (slot(), slot(), False),
        (slot(wal_status=WalStatus.LOST), slot(), True),
        (slot(), slot(wal_status=WalStatus.LOST), False),
        (slot(), slot(plugin="wal2json"), True),
        (slot(decoded_transactions=7), slot(decoded_transactions=0), True),
        (slot(decoded_transactions=7), slot(decoded_transactions=9), False),
        (
            slot(decoded_transactions=7),
            slot(decoded_transactions=0, statistics_reset_at=at(0)),
            False,
        ),
    ],
)
def test_a_slot_made_anew_is_recognised(
    before: Slot,
    now: Slot,
    expected: bool,  # noqa: FBT001 - a table's column
) -> None:
    assert is_replaced(before, now, has_restarted=False) is expected


def test_statistics_that_a_restart_began_again_prove_nothing() -> None:
    before, now = slot(decoded_transactions=7), slot(decoded_transactions=0)

    assert not is_replaced(before, now, has_restarted=True)
