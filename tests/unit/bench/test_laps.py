"""What laps come to: pairs stay pairs, and a run that failed drops out of them."""

from __future__ import annotations

import pytest

from bench.catch_up import HEAD, add_rows
from bench.growth import growths
from bench.laps import arrived, both, middle, panels
from bench.race import Point, Run
from bench.table import NOTHING, Table


def a_run(who: str, seconds: float, *, cpu_s: float = 0.1) -> Run:
    way = (
        Point(seconds=0, events=0, rss_bytes=2**20),
        Point(seconds=seconds, events=1_000, rss_bytes=2 * 2**20),
    )
    return Run(
        contestant=who,
        events=1_000,
        repeated=0,
        seconds=seconds,
        cpu_s=cpu_s,
        walsender_cpu_s=seconds / 4,
        rss_peak_bytes=3 * 2**20,
        rss_rest_bytes=2**20,
        points=way,
    )


def test_a_run_has_its_rate_and_its_cost_an_event() -> None:
    run = a_run("walferry", 2.0, cpu_s=0.01)

    assert run.rate == 500
    assert run.cpu_us == pytest.approx(10)


def test_a_failed_run_takes_its_partner_out_of_the_pairs() -> None:
    first, second, third = (a_run("a", seconds) for seconds in (1, 2, 3))

    assert both([first, None, third], [third, second, first]) == [
        (first, third),
        (third, first),
    ]
    assert arrived([None, second]) == [second]


def test_the_middle_run_is_one_that_was_run() -> None:
    slow, even, fast = (a_run("a", seconds) for seconds in (3, 2, 1))

    assert middle([slow, fast, even]) is even
    assert middle([fast, slow]) is slow


def test_a_row_says_how_much_faster_and_cheaper_walferry_is() -> None:
    table = Table(title="t", head=HEAD)
    ours = [a_run("walferry", 1.0), a_run("walferry", 1.0)]
    theirs = [a_run("other", 2.0, cpu_s=0.4), a_run("other", 4.0, cpu_s=0.4)]

    add_rows(table, "load", {"walferry": [*ours], "other": [*theirs]})

    us, them = (dict(zip(HEAD, row, strict=True)) for row in table.rows)
    assert us["walferry is x as fast"] == NOTHING
    assert them["walferry is x as fast"] == "3.00 (2.00..4.00)"
    assert them["walferry takes x of that"] == "0.25 (0.25..0.25)"
    assert them["walsender busy %"] == "25"


def test_a_contestant_that_never_arrived_has_a_row_that_says_so() -> None:
    table = Table(title="t", head=HEAD)

    add_rows(table, "load", {"walferry": [a_run("walferry", 1)], "other": [None]})

    assert list(table.rows[1][:3]) == ["load", "other", "failed"]


def test_the_picture_leaves_out_who_never_arrived() -> None:
    rate, memory = panels("load", {"walferry": [a_run("walferry", 1)], "other": [None]})

    assert [line.name for line in rate.lines] == ["walferry"]
    assert memory.lines[0].points == [(0, 1.0), (1, 2.0)]


@pytest.mark.parametrize("base", [5_000, 100_000])
def test_each_growth_is_of_whole_transactions_and_one_thing(base: int) -> None:
    loads = growths(base)

    assert all(
        load.count and load.count % load.in_transaction == 0 for load in loads.values()
    )
    assert loads[f"{base * 10:,} rows in one"].in_transaction == base * 10
    assert loads[f"{base * 10:,} keys"].keys == base * 10
    assert loads["1 MB payloads"].payload_bytes * loads["1 MB payloads"].count <= 2e8
