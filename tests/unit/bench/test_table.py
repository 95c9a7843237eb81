"""Tables of the benchmarks read the same on a terminal and in Markdown."""

from __future__ import annotations

import pytest

from bench.figures import Percentiles, Spread
from bench.table import NOTHING, Table, around, mebibytes, milliseconds, number


def a_table() -> Table:
    table = Table(title="Rates", head=("who", "events/s"), notes=["A note."])
    table.add("walferry", "92,000")
    table.add("a|b", "7")
    return table


def test_on_a_terminal_names_stand_left_and_numbers_right() -> None:
    assert a_table().as_text() == (
        "Rates\nwho       events/s\nwalferry    92,000\na|b              7\nA note.\n"
    )


def test_markdown_is_a_section_with_a_table_whose_cells_stay_cells() -> None:
    assert a_table().as_markdown() == (
        "## Rates\n\n"
        "| who | events/s |\n"
        "| :-- | --: |\n"
        "| walferry | 92,000 |\n"
        "| a\\|b | 7 |\n"
        "\nA note.\n"
    )


def test_a_table_with_no_rows_is_its_head() -> None:
    assert Table(title="T", head=("a", "b")).as_text() == "T\na  b\n"


def test_a_row_that_is_not_as_wide_as_the_head_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        a_table().add("walferry")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (9.994, "9.99"),
        (10, "10.0"),
        (99.4, "99.4"),
        (123_456, "123,456"),
    ],
)
def test_a_number_has_about_three_digits_or_is_whole(value: float, text: str) -> None:
    assert number(value) == text


def test_a_spread_is_written_with_its_extremes_and_none_as_nothing() -> None:
    assert around(Spread(low=1, median=20, high=300)) == "20.0 (1.00..300)"
    assert around(None) == NOTHING


def test_units_are_those_of_the_columns() -> None:
    times = Percentiles(count=3, p50=0.0015, p99=0.02, longest=1.5)

    assert milliseconds(times) == ("1.50", "20.00", "1500.00")
    assert mebibytes(3 * 2**20) == "3.0"
