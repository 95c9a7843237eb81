"""When status updates go out."""

import pytest

from cdc.status import ASKING_PAUSE_S, CONFIRM_PAUSE_S, REPLY_PAUSE_S, StatusSchedule


def test_a_quiet_stream_is_told_once_an_interval() -> None:
    schedule = StatusSchedule(10.0, now=100.0)

    assert schedule.wait_s(now=100.0) == 10.0
    assert schedule.wait_s(now=104.0) == 6.0
    assert schedule.wait_s(now=111.0) == 0.0

    schedule.sent(now=111.0)
    assert schedule.wait_s(now=111.0) == 10.0


def test_a_first_question_is_answered_at_once() -> None:
    schedule = StatusSchedule(10.0, now=100.0)

    schedule.asked(now=100.01)

    assert schedule.wait_s(now=100.01) == 0.0


def test_repeated_questions_are_answered_with_a_pause_between() -> None:
    schedule = StatusSchedule(10.0, now=100.0)
    schedule.asked(now=101.0)
    schedule.sent(now=101.0)

    schedule.asked(now=101.001)

    assert 0.0 < schedule.wait_s(now=101.001) <= REPLY_PAUSE_S
    assert schedule.wait_s(now=101.0 + REPLY_PAUSE_S) == 0.0


def test_a_moved_position_does_not_wait_for_the_interval() -> None:
    schedule = StatusSchedule(10.0, now=100.0)

    schedule.moved()

    assert schedule.wait_s(now=100.0) == pytest.approx(CONFIRM_PAUSE_S)
    schedule.sent(now=101.0)
    assert schedule.wait_s(now=101.0) == 10.0


def test_a_short_interval_is_never_stretched() -> None:
    schedule = StatusSchedule(0.05, now=0.0)
    schedule.moved()
    schedule.asked(now=0.0)
    schedule.sent(now=0.0)
    schedule.moved()

    assert schedule.wait_s(now=0.0) == 0.05


def test_a_server_that_keeps_asking_is_noticed_and_one_that_stops_is_forgotten() -> (
    None
):
    schedule = StatusSchedule(10.0, now=0.0)
    assert schedule.asked_for_s(now=0.0) == 0.0

    schedule.asked(now=10.0)
    for step in range(1, 20):
        schedule.asked(now=10.0 + step * 0.1)

    assert schedule.asked_for_s(now=11.9) > 1.8
    assert schedule.asked_for_s(now=11.9 + ASKING_PAUSE_S + 0.01) == 0.0
    schedule.asked(now=30.0)
    assert schedule.asked_for_s(now=30.0) == 0.0
