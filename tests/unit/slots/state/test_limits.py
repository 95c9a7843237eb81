"""Limits are read from texts and judged with a margin on the way down."""

from __future__ import annotations

import pytest

from slots.state import Level, Limits, Threshold
from slots.state.units import GB

RISING = Threshold(100, 200)
FALLING = Threshold(100, 50, falls=True)


@pytest.mark.parametrize(
    ("value", "was", "level"),
    [
        (None, Level.CRITICAL, Level.OK),
        (99, Level.OK, Level.OK),
        (100, Level.OK, Level.WARNING),
        (91, Level.WARNING, Level.WARNING),
        (89, Level.WARNING, Level.OK),
        (200, Level.OK, Level.CRITICAL),
        (181, Level.CRITICAL, Level.CRITICAL),
        (181, Level.WARNING, Level.WARNING),
        (179, Level.CRITICAL, Level.WARNING),
        (50, Level.CRITICAL, Level.OK),
    ],
)
def test_a_level_is_left_with_a_margin_only(
    value: float | None, was: Level, level: Level
) -> None:
    assert RISING.level(value, was) is level


@pytest.mark.parametrize(
    ("value", "was", "level"),
    [
        (101, Level.OK, Level.OK),
        (100, Level.OK, Level.WARNING),
        (109, Level.WARNING, Level.WARNING),
        (111, Level.WARNING, Level.OK),
        (50, Level.OK, Level.CRITICAL),
        (54, Level.CRITICAL, Level.CRITICAL),
        (56, Level.CRITICAL, Level.WARNING),
    ],
)
def test_small_numbers_are_the_bad_ones_where_the_limit_falls(
    value: float, was: Level, level: Level
) -> None:
    assert FALLING.level(value, was) is level


def test_a_limit_that_is_off_is_never_reached() -> None:
    assert Threshold().level(10**12) is Level.OK


def test_limits_are_read_over_the_defaults() -> None:
    limits = Limits.of(
        {
            "lag": "2GB:10GB",
            "budget": "60%",
            "inactive": ":1h",
            "time_to_loss": "2h:30min",
            "xmin_age": "off",
            "disk": "50GB",
            "no_wal_limit": "off",
        }
    )

    assert limits.lag == Threshold(2 * GB, 10 * GB)
    assert limits.budget == Threshold(0.6)
    assert limits.inactive == Threshold(None, 3600)
    assert limits.time_to_loss == Threshold(7200, 1800, falls=True)
    assert limits.xmin_age == Threshold()
    assert limits.disk == 50 * GB
    assert limits.no_wal_limit is False
    assert limits.slot_count == Limits().slot_count


def test_time_to_loss_that_is_off_still_falls() -> None:
    assert Limits.of({"time_to_loss": "off"}).time_to_loss == Threshold(falls=True)
    assert Limits.of({"disk": "off"}).disk is None
    assert Limits.of({"no_wal_limit": "on"}).no_wal_limit is True


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("lags", "1GB", "did you mean lag"),
        ("zzzz", "1GB", "there is no limit 'zzzz': retained, lag"),
        ("lag", "much", "lag: 'much' is not a size"),
        ("lag", "5GB:1GB", "lag: the warning must come before critical"),
        ("time_to_loss", "1h:6h", "time_to_loss: the warning must come before"),
        ("lag", ":", "lag: write WARNING:CRITICAL, or off"),
        ("disk", "all", "disk: 'all' is not a size"),
        ("no_wal_limit", "maybe", "no_wal_limit: 'maybe' is neither on nor off"),
    ],
)
def test_what_is_no_limit_is_refused_in_one_line(
    name: str, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Limits.of({name: text})

    assert "\n" not in str(caught.value)


def test_levels_have_words() -> None:
    assert [level.word for level in Level] == ["ok", "warning", "critical"]
