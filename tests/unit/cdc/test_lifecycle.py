"""States, moves and pauses."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.lifecycle import MOVES, Repeats, State, delays, move


def test_every_state_has_its_line_in_the_table() -> None:
    assert set(MOVES) == set(State)


@pytest.mark.parametrize("state", State)
def test_staying_is_always_allowed(state: State) -> None:
    assert move(state, state) is state


def test_a_stopped_relay_stays_stopped() -> None:
    with pytest.raises(ValueError, match="no way from stopped to streaming"):
        move(State.STOPPED, State.STREAMING)


def test_every_state_but_draining_can_be_reached_and_left_for_stopped() -> None:
    reachable = {State.STARTING}
    for _ in State:
        reachable |= {target for state in reachable for target in MOVES[state]}

    assert reachable == set(State)
    assert all(State.STOPPED in MOVES[state] for state in State if MOVES[state])


@given(
    initial=st.floats(0.01, 5),
    maximum=st.floats(5, 60),
    chances=st.lists(st.floats(0, 0.999), min_size=12, max_size=12),
)
def test_pauses_grow_to_the_maximum_and_never_beyond(
    initial: float, maximum: float, chances: list[float]
) -> None:
    draws = iter(chances)

    pauses = list(islice(delays(initial, maximum, chance=lambda: next(draws)), 12))

    assert len(pauses) == 12
    step = initial
    for pause in pauses:
        assert min(step, maximum) / 2 <= pause <= min(step, maximum)
        step = min(step * 2, maximum)


def test_only_the_same_failure_in_a_row_counts_as_stuck() -> None:
    repeats = Repeats(3)

    assert [repeats.seen(place) for place in "aabaaa"] == [
        False,
        False,
        False,
        False,
        False,
        True,
    ]
    repeats.clear()
    assert not repeats.seen("a")
