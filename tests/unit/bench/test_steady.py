"""Times of a steady load are between the right two moments, warm-up left out."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from bench.reader import event_number
from bench.steady import Load, times_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MS = 1_000_000
WALL = 1_800_000_000_000 * MS


def put(path: Path, triples: Iterable[tuple[int, int, int]]) -> None:
    path.write_bytes(array("q", [one for each in triples for one in each]).tobytes())


def test_a_load_warms_up_for_two_seconds_in_whole_transactions() -> None:
    load = Load(per_second=10_000, rows=10, seconds=3)

    assert load.commits_per_second == 1_000
    assert load.warm_up == 20_000
    assert load.commits == 5_000


def test_each_event_is_timed_from_its_own_commit(tmp_path: Path) -> None:
    """Two rows a commit: the second commit's rows came 3 and 5 ms after it."""
    load = Load(per_second=1, rows=2, seconds=2)
    warm_up, counted = 2, 4
    assert (load.warm_up, load.commits) == (warm_up, 2)
    put(
        tmp_path / "committed",
        [(warm_up, 0, WALL), (counted, 100 * MS, WALL + 100 * MS)],
    )
    put(
        tmp_path / "consumed",
        [
            (1, 90 * MS, WALL // MS + 90),
            (2, 90 * MS, WALL // MS + 90),
            (3, 103 * MS, WALL // MS + 101),
            (4, 105 * MS, WALL // MS + 101),
        ],
    )

    times = times_of("walferry", tmp_path, load, cpu_s=0.004)

    assert times.consumed.count == 2
    assert times.consumed.p50 == pytest.approx(0.003)
    assert times.consumed.longest == pytest.approx(0.005)
    assert times.appended.p50 == pytest.approx(0.0015)
    assert times.cpu_us == pytest.approx(1_000)
    assert times.per_second == pytest.approx(20)


def test_an_event_that_overtakes_its_commit_took_no_time(tmp_path: Path) -> None:
    load = Load(per_second=1, rows=1, seconds=1)
    put(
        tmp_path / "committed",
        [(number, 100 * MS * number, WALL) for number in (1, 2, 3)],
    )
    put(
        tmp_path / "consumed",
        [(number, 100 * MS * number - 5, WALL // MS - 9) for number in (1, 2, 3)],
    )

    times = times_of("walferry", tmp_path, load, cpu_s=0)

    assert (times.consumed.longest, times.appended.longest) == (0, 0)


def test_the_number_of_an_event_stands_first_in_its_payload() -> None:
    assert event_number(b'{"n": 4711, "filler": "x"}') == 4711


def test_a_payload_of_somebody_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not an event of this load"):
        event_number(b'{"total": 12}')
