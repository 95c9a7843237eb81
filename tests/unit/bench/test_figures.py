"""The numbers of the benchmarks are what they say they are."""

from __future__ import annotations

import pytest

from bench.figures import (
    Spread,
    nearest_rank,
    paired_ratio,
    percentiles,
    rates,
    spread,
    thinned,
)


def test_a_spread_has_the_middle_and_the_extremes() -> None:
    assert spread([3.0, 1.0, 8.0]) == Spread(low=1.0, median=3.0, high=8.0)


def test_the_middle_of_an_even_number_lies_between_the_two() -> None:
    assert spread([4.0, 1.0, 2.0, 8.0]).median == 3.0


def test_no_values_have_no_spread_and_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])
    with pytest.raises(ValueError, match="no values"):
        percentiles([])


def test_percentiles_are_values_that_were_measured() -> None:
    found = percentiles([float(value) for value in range(200, 0, -1)])

    assert (found.count, found.p50, found.p99, found.longest) == (200, 100, 198, 200)


def test_a_single_value_is_every_percentile() -> None:
    found = percentiles([0.25])

    assert (found.p50, found.p99, found.longest) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (25, 1), (26, 2), (100, 4)])
def test_a_rank_is_rounded_up_and_never_leaves_the_values(
    percent: float, value: float
) -> None:
    assert nearest_rank([1, 2, 3, 4], percent) == value


def test_ratios_are_of_the_runs_of_a_pair_and_not_of_their_medians() -> None:
    """A machine that halves its speed half-way halves both of each pair."""
    ours = [100.0, 90.0, 50.0]
    theirs = [50.0, 30.0, 25.0]

    assert paired_ratio(ours, theirs) == Spread(low=2.0, median=2.0, high=3.0)


def test_a_run_without_a_partner_is_left_out_of_the_ratio() -> None:
    assert paired_ratio([4.0, 9.0], [2.0]) == Spread(low=2.0, median=2.0, high=2.0)


def test_where_no_pair_is_whole_there_is_no_ratio() -> None:
    assert paired_ratio([], [1.0]) is None
    assert paired_ratio([1.0], [0.0]) is None


def test_a_rate_is_of_its_own_window_and_stands_in_its_middle() -> None:
    points = [(0.0, 0.0), (0.5, 10.0), (1.0, 30.0), (2.0, 130.0)]

    assert rates(points, 1.0) == [(0.5, 30.0), (1.5, 100.0)]


def test_what_does_not_fill_a_window_has_no_rate() -> None:
    assert rates([(0.0, 0.0), (0.4, 10.0)], 1.0) == []
    assert rates([], 1.0) == []


def test_thinned_points_keep_the_first_and_the_last() -> None:
    points = list(range(1_001))

    kept = thinned(points, 11)

    assert kept == list(range(0, 1_001, 100))


def test_few_points_are_not_thinned() -> None:
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
