"""The picture is well-formed SVG, and its lines stay inside their axes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench.picture import Line, Panel, draw, round_limit

SVG = "{http://www.w3.org/2000/svg}"


def lines(svg: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return colour and points of every line."""
    root = ET.fromstring(svg)  # noqa: S314 - drawn here
    return [
        (
            one.attrib["stroke"],
            [
                (float(x), float(y))
                for x, y in (pair.split(",") for pair in one.attrib["points"].split())
            ],
        )
        for one in root.iter(f"{SVG}polyline")
    ]


def test_a_line_runs_from_axis_to_axis_and_up_where_values_grow() -> None:
    line = Line(name="walferry", points=[(0, 0), (5, 50), (10, 100)])

    [(_, points)] = lines(draw([[Panel(title="events/s", lines=[line])]]))

    (left, low), (_, half), (right, high) = points
    assert left < right
    assert low > half > high
    assert half == pytest.approx((low + high) / 2)


def test_a_name_has_one_colour_in_all_panels_and_names_differ() -> None:
    first = [Line(name="a", points=[(0, 1)]), Line(name="b", points=[(0, 1)])]
    second = [Line(name="b", points=[(0, 1)])]

    svg = draw([[Panel(title="x", lines=first), Panel(title="y", lines=second)]])

    (a, _), (b, _), (again, _) = lines(svg)
    assert a != b
    assert b == again


def test_names_and_titles_may_hold_anything() -> None:
    line = Line(name="<a & b>", points=[(0, 0)])

    root = ET.fromstring(draw([[Panel(title="5 < 6", lines=[line])]]))  # noqa: S314

    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert "<a & b>" in texts
    assert "5 < 6" in texts


def test_a_long_line_is_thinned() -> None:
    line = Line(name="a", points=[(second, second) for second in range(10_000)])

    [(_, points)] = lines(draw([[Panel(title="x", lines=[line])]]))

    assert len(points) == 200


def test_nothing_measured_is_an_empty_picture() -> None:
    assert lines(draw([])) == []
    assert lines(draw([[Panel(title="x", lines=[])]])) == []


@pytest.mark.parametrize(
    ("highest", "limit"),
    [(0, 1), (-3, 1), (1, 1), (1.2, 2), (2.2, 2.5), (3, 5), (51_000, 100_000)],
)
def test_an_axis_ends_at_a_round_number_that_nothing_exceeds(
    highest: float, limit: float
) -> None:
    assert round_limit(highest) == pytest.approx(limit)
