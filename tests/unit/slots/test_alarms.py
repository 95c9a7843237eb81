"""Alarms are raised once, change their level once, and are cleared once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.alarms import Alarms, AlarmState, Change
from slots.state import Finding, History, Kind, Level, Limits, Reading, WalStatus
from slots.state.units import GB, MB
from tests.slot_readings import at, behind, idle, reading, slot

RAISED, CLEARED = AlarmState.RAISED, AlarmState.CLEARED


class Stand:
    """Alarms with their history, and what they have told."""

    def __init__(self, limits: Limits | None = None, *names: str) -> None:
        self.history = History()
        self.alarms = Alarms(limits or Limits(), names=names)

    def look(self, one: Reading) -> list[tuple[AlarmState, Kind, Level]]:
        return told(self.alarms.observe(one, self.history))

    def up(self) -> list[tuple[str, Kind, Level]]:
        return [(one.slot_name, one.kind, one.level) for one in self.alarms.up]


def told(changes: tuple[Change, ...]) -> list[tuple[AlarmState, Kind, Level]]:
    return [(one.state, one.alarm.kind, one.alarm.level) for one in changes]


def lagging(lag: int, seconds: float) -> Reading:
    one = replace(behind(lag), safe_wal_bytes=None)
    return reading(one, seconds=seconds)


def test_an_alarm_is_raised_once_and_cleared_once() -> None:
    stand = Stand()

    assert stand.look(lagging(0, 0)) == []
    assert stand.look(lagging(1 * GB, 10)) == [(RAISED, Kind.LAG, Level.WARNING)]
    assert stand.look(lagging(2 * GB, 20)) == []
    assert stand.look(lagging(1 * GB - 1, 30)) == []
    assert stand.look(lagging(500 * MB, 40)) == [(CLEARED, Kind.LAG, Level.WARNING)]
    assert stand.look(lagging(500 * MB, 50)) == []


def test_a_level_is_told_when_it_changes_in_either_direction() -> None:
    stand = Stand()
    stand.look(lagging(1 * GB, 0))

    assert stand.look(lagging(5 * GB, 10)) == [(RAISED, Kind.LAG, Level.CRITICAL)]
    assert stand.look(lagging(2 * GB, 20)) == [(RAISED, Kind.LAG, Level.WARNING)]


def test_an_alarm_keeps_its_beginning_and_shows_todays_numbers() -> None:
    stand = Stand()
    stand.look(lagging(1 * GB, 0))
    stand.look(lagging(3 * GB, 60))

    (alarm,) = stand.alarms.up

    assert alarm.since == at(0)
    assert "3 GB" in alarm.text
    assert (alarm.slot_name, alarm.slot_type, alarm.database) == (
        "a",
        "logical",
        "shop",
    )


def test_a_change_says_when_and_what_was_before() -> None:
    stand = Stand()
    stand.look(lagging(1 * GB, 0))

    (change,) = stand.alarms.observe(lagging(6 * GB, 7), stand.history)

    assert (change.was, change.at) == (Level.WARNING, at(7))


def test_what_is_lost_is_raised_before_the_rest_is_cleared() -> None:
    stand = Stand()
    stand.look(reading(behind(900 * MB)))

    changes = stand.look(reading(idle(wal_status=WalStatus.LOST), seconds=10))

    assert changes[0] == (RAISED, Kind.LOST, Level.CRITICAL)
    assert (CLEARED, Kind.BUDGET, Level.CRITICAL) in changes
    assert stand.up() == [("a", Kind.LOST, Level.CRITICAL)]


def test_the_servers_alarms_have_no_slot() -> None:
    stand = Stand()

    stand.look(reading(slot(), slot_wal_limit_bytes=None))

    assert stand.up() == [("", Kind.NO_WAL_LIMIT, Level.WARNING)]


def test_a_failed_reading_is_an_alarm_and_leaves_the_rest_up() -> None:
    stand = Stand(Limits.of({"no_progress": "off"}))
    stand.look(lagging(1 * GB, 0))

    first = stand.alarms.failed("connection refused", at(10))
    assert told(first) == [(RAISED, Kind.READING_FAILED, Level.WARNING)]
    assert "connection refused" in first[0].alarm.text
    assert stand.alarms.failed("connection refused", at(20)) == ()
    later = stand.alarms.failed("connection refused", at(311))
    assert told(later) == [(RAISED, Kind.READING_FAILED, Level.CRITICAL)]
    assert stand.up() == [
        ("", Kind.READING_FAILED, Level.CRITICAL),
        ("a", Kind.LAG, Level.WARNING),
    ]

    assert stand.look(lagging(1 * GB, 320)) == [
        (CLEARED, Kind.READING_FAILED, Level.CRITICAL)
    ]
    again = stand.alarms.failed("connection refused", at(400))
    assert told(again) == [(RAISED, Kind.READING_FAILED, Level.WARNING)]


def test_a_clock_that_goes_back_while_failing_is_no_matter() -> None:
    stand = Stand()
    stand.alarms.failed("away", at(10))

    assert stand.alarms.failed("away", at(5)) == ()


def test_a_dropped_slot_is_told_for_an_hour() -> None:
    stand = Stand()
    stand.look(reading(slot()))

    assert stand.look(reading(seconds=10)) == [(RAISED, Kind.MISSING, Level.WARNING)]
    assert stand.look(reading(seconds=20)) == []
    assert str(slot().confirmed_flush_lsn) in stand.alarms.up[0].text
    assert stand.look(reading(seconds=3611)) == [(CLEARED, Kind.MISSING, Level.WARNING)]
    assert stand.look(reading(slot(), seconds=3620)) == []


def test_a_temporary_slot_comes_and_goes_without_a_word() -> None:
    stand = Stand()
    stand.look(reading(slot(temporary=True)))

    assert stand.look(reading(seconds=10)) == []


def test_a_dropped_slot_that_comes_back_is_another_one() -> None:
    stand = Stand()
    stand.look(reading(slot()))
    stand.look(reading(seconds=10))

    assert stand.look(reading(slot(), seconds=20)) == [
        (RAISED, Kind.REPLACED, Level.WARNING),
        (CLEARED, Kind.MISSING, Level.WARNING),
    ]
    assert stand.look(reading(slot(), seconds=3700)) == [
        (CLEARED, Kind.REPLACED, Level.WARNING)
    ]


def test_a_slot_replaced_between_two_looks_is_noticed() -> None:
    stand = Stand()
    stand.look(reading(slot(decoded_transactions=9)))
    stand.look(reading(slot(decoded_transactions=9), seconds=100))

    changes = stand.look(reading(slot(decoded_transactions=0), seconds=110))

    assert changes == [(RAISED, Kind.REPLACED, Level.WARNING)]
    assert stand.history.trend(slot()).growth_bytes_s is None


def test_statistics_lost_in_a_restart_are_no_replacement() -> None:
    stand = Stand()
    stand.look(reading(slot(decoded_transactions=9)))

    after = reading(slot(decoded_transactions=0), seconds=10, started_at=at(5))

    assert stand.look(after) == []


def test_a_named_slot_has_to_be_there() -> None:
    stand = Stand(None, "a", "b")

    assert stand.look(reading(slot("a"))) == [(RAISED, Kind.MISSING, Level.CRITICAL)]
    assert stand.up() == [("b", Kind.MISSING, Level.CRITICAL)]
    assert stand.look(reading(slot("a"), seconds=9999)) == []
    assert stand.look(reading(seconds=10000)) == [
        (RAISED, Kind.MISSING, Level.CRITICAL)
    ]
    assert "last seen at" in stand.alarms.up[0].text


def test_slots_that_are_not_named_are_not_watched() -> None:
    stand = Stand(None, "a")

    stand.look(reading(slot("a"), slot("b", wal_status=WalStatus.LOST)))
    stand.look(reading(slot("a"), seconds=10))

    assert stand.up() == []


@given(st.lists(st.integers(min_value=0, max_value=7 * GB), max_size=30))
def test_what_was_told_adds_up_to_what_is_up(lags: list[int]) -> None:
    """Whoever listens to changes alone knows every alarm that is up, and its level."""
    stand = Stand()
    known: dict[tuple[str, Kind], Level] = {}
    for number, lag in enumerate(lags):
        changes = stand.alarms.observe(lagging(lag, 10.0 * number), stand.history)
        for change in changes:
            key = (change.alarm.slot_name, change.alarm.kind)
            assert known.get(key, Level.OK) is change.was
            if change.state is RAISED:
                assert change.alarm.level is not change.was
                known[key] = change.alarm.level
            else:
                del known[key]
        assert known == {
            (one.slot_name, one.kind): one.level for one in stand.alarms.up
        }


@pytest.mark.parametrize("wobble", [0, 50 * MB, 99 * MB])
def test_a_number_that_wobbles_at_its_limit_raises_once(wobble: int) -> None:
    stand = Stand()

    changes = [
        change
        for number in range(20)
        for change in stand.look(lagging(1 * GB - (number % 2) * wobble, number))
    ]

    assert changes == [(RAISED, Kind.LAG, Level.WARNING)]


def test_what_a_consumer_says_of_itself_is_an_alarm_while_it_says_so() -> None:
    stand = Stand(Limits(no_wal_limit=False))
    finding = Finding(
        kind=Kind.CONSUMER, level=Level.CRITICAL, text="has stopped", remedy="decide"
    )
    look = reading(idle(), seconds=0)
    for name in (idle().name, "one that was dropped"):
        raised = stand.alarms.observe(look, stand.history, consumer=(name, finding))
        assert (RAISED, Kind.CONSUMER, Level.CRITICAL) in told(raised)
        assert (name, Kind.CONSUMER, Level.CRITICAL) in stand.up()

    assert (CLEARED, Kind.CONSUMER, Level.CRITICAL) in stand.look(look)
