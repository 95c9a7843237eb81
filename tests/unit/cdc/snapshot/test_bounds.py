"""What a user writes as a bound is a time, a position, an event, or one clear error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import SettingsError
from cdc.snapshot import EventId, Since, parse_since
from slots.lsn import Lsn

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9990, 1, 1))  # noqa: DTZ001 - the zone is the test's


@given(time=TIMES, separator=st.sampled_from("T "), blank=st.sampled_from(["", " "]))
def test_a_time_without_a_zone_is_utc(
    time: datetime, separator: str, blank: str
) -> None:
    bound = parse_since(blank + time.isoformat(separator) + blank)

    assert bound.value == time.replace(tzinfo=UTC)


@given(time=TIMES, zone=ZONES)
def test_a_time_with_a_zone_is_that_moment(time: datetime, zone: timezone) -> None:
    moment = time.replace(tzinfo=zone)

    bound = parse_since(moment.isoformat())

    assert bound.value == moment
    assert bound.at_ms is not None
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert timedelta(0) <= since_epoch - timedelta(milliseconds=bound.at_ms)
    assert since_epoch - timedelta(milliseconds=bound.at_ms) < timedelta(milliseconds=1)


@given(st.integers(0, (1 << 64) - 1))
def test_any_lsn_is_read_as_it_is_printed(number: int) -> None:
    bound = parse_since(str(Lsn(number)))

    assert bound == Since(Lsn(number))
    assert isinstance(bound.value, Lsn)
    assert str(bound) == str(Lsn(number))


@given(st.uuids().map(str) | st.integers().map(str))
def test_the_ids_that_outboxes_have_are_ids(text: str) -> None:
    assert parse_since(text).value == EventId(text)
    assert parse_since(text).at_ms is None


@given(st.text(st.characters(exclude_characters="\0"), min_size=1).map(str.strip))
def test_whatever_follows_id_is_an_id(text: str) -> None:
    if text:
        assert parse_since(f"id:{text}").value == EventId(text)


@given(st.text())
def test_any_text_is_a_bound_or_one_line_that_says_what_to_write(text: str) -> None:
    said = ""
    try:
        parse_since(text)
    except SettingsError as exc:
        said = f"{exc}; {exc.hint}"

    assert len(said.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:00+02", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("0/16B3748", Lsn(0x16B3748)),
        ("20260131", EventId("20260131")),
        ("20260131-0000-4000-8000-000000000000",) * 2,
        ("orders/2026", EventId("orders/2026")),
        ("id:0/16B3748", EventId("0/16B3748")),
        ("id:2026-01-31", EventId("2026-01-31")),
    ],
)
def test_times_positions_and_ids_are_told_apart(text: str, value: object) -> None:
    expected = EventId(value) if isinstance(value, str) else value

    assert parse_since(text).value == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("id:", "empty"),
        ("a\0b", "NUL"),
        ("2026-13-01", "'2026-13-01' looks like a time"),
        ("2026-01-31T25:00", "looks like a time and is none"),
        ("2026-01-31 yesterday", "looks like a time and is none"),
        ("0001-01-01T00:00:00+14:00", "looks like a time and is none"),
        ("123456789/0", "looks like an LSN and is none"),
        ("2026-01-31 " + "x" * 5000, r"x\.\.\.' looks like"),
    ],
)
def test_what_seems_to_be_a_time_or_a_position_and_is_none_is_named(
    text: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        parse_since(text)

    assert len(str(raised.value)) < 200
    assert "0/16B3748" in raised.value.hint


def test_a_bound_is_shown_in_utc() -> None:
    shown = str(parse_since("2026-01-31T12:00:00+02:00"))

    assert shown == "2026-01-31 10:00:00.000000 UTC"
    assert str(parse_since("7f0c")) == "event 7f0c"
