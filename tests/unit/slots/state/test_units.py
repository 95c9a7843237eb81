"""Sizes, times, shares and counts are read and printed as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slots.state import units
from slots.state.units import GB, MB

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes, "10GB", 10 * GB),
        (units.parse_bytes, " 1.5 gb ", 1.5 * GB),
        (units.parse_bytes, "64MiB", 64 * MB),
        (units.parse_bytes, "7", 7),
        (units.parse_seconds, "90s", 90),
        (units.parse_seconds, "5min", 300),
        (units.parse_seconds, "6h", 21600),
        (units.parse_seconds, "2d", 172800),
        (units.parse_seconds, "3", 3),
        (units.parse_share, "80%", 0.8),
        (units.parse_share, "0.8", 0.8),
        (units.parse_count, "10M", 10_000_000),
        (units.parse_count, "1000", 1000),
    ],
)
def test_texts_are_read(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (units.parse_bytes, "ten"),
        (units.parse_bytes, "10 furlongs"),
        (units.parse_bytes, "-1GB"),
        (units.parse_seconds, "5 weeks"),
        (units.parse_share, "80%%"),
        (units.parse_share, "half"),
        (units.parse_count, ""),
    ],
)
def test_other_texts_are_refused(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse(text)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.show_bytes(None), "-"),
        (units.show_bytes(0), "0 B"),
        (units.show_bytes(1023), "1023 B"),
        (units.show_bytes(1024), "1 kB"),
        (units.show_bytes(1.234 * GB), "1.23 GB"),
        (units.show_bytes(300 * MB), "300 MB"),
        (units.show_bytes(-5 * MB), "-5 MB"),
        (units.show_rate(None), "-"),
        (units.show_rate(2 * MB), "2 MB/s"),
        (units.show_seconds(None), "-"),
        (units.show_seconds(59.4), "59 s"),
        (units.show_seconds(60), "1 min"),
        (units.show_seconds(61), "1 min 1 s"),
        (units.show_seconds(3 * 3600 + 20 * 60), "3 h 20 min"),
        (units.show_seconds(3 * 86400 + 3600), "3 d 1 h"),
        (units.show_briefly(None), "-"),
        (units.show_briefly(119), "119 s"),
        (units.show_briefly(120), "2 min"),
        (units.show_briefly(3 * 3600 + 20 * 60), "3 h"),
        (units.show_briefly(5 * 86400), "5 d"),
        (units.show_share(None), "-"),
        (units.show_share(0.525), "52%"),
        (units.show_count(None), "-"),
        (units.show_count(999), "999"),
        (units.show_count(12_345), "12.3k"),
        (units.show_count(12_345_678), "12.3M"),
    ],
)
def test_values_are_shown(shown: str, text: str) -> None:
    assert shown == text
