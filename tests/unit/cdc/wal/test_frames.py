"""COPY BOTH frames in both directions."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wal.frames import POSTGRES_EPOCH_US, Keepalive, parse, status_update
from slots.lsn import Lsn

LSNS = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**62), 2**62)


def test_times_on_the_wire_count_from_the_year_2000() -> None:
    epoch = datetime(2000, 1, 1, tzinfo=UTC)

    assert datetime.fromtimestamp(POSTGRES_EPOCH_US / 1_000_000, UTC) == epoch
    assert POSTGRES_EPOCH_US % 1_000_000 == 0


@given(LSNS, LSNS, TIMES, st.binary(max_size=200))
def test_wal_data_keeps_its_payload(
    start: int, end: int, at: int, payload: bytes
) -> None:
    frame = parse(memoryview(struct.pack("!cQQq", b"w", start, end, at) + payload))

    assert frame == payload


@given(LSNS, TIMES, st.booleans())
def test_keepalives_keep_position_time_and_question(
    end: int,
    at: int,
    asks: bool,  # noqa: FBT001 - drawn by position
) -> None:
    frame = parse(memoryview(struct.pack("!cQqB", b"k", end, at, asks)))

    assert frame == Keepalive(Lsn(end), at + POSTGRES_EPOCH_US, asks)


def test_a_status_says_received_and_confirmed_and_asks_nothing() -> None:
    status = status_update(
        received=Lsn(9), confirmed=Lsn(7), now_us=POSTGRES_EPOCH_US + 5
    )

    assert struct.unpack("!cQQQqB", status) == (b"r", 9, 7, 7, 5, 0)
    asking = status_update(
        received=Lsn(9), confirmed=Lsn(7), now_us=POSTGRES_EPOCH_US, asks=True
    )
    assert asking[-1] == 1


@pytest.mark.parametrize(
    "data", [b"", b"w", b"w" + b"\0" * 23, b"k" + b"\0" * 16, b"k" + b"\0" * 18, b"x"]
)
def test_anything_else_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(memoryview(data))
