"""Positions in the WAL as text and as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.lsn import Lsn

LSNS = st.integers(0, 2**64 - 1)


@given(LSNS)
def test_a_printed_position_is_read_back(value: int) -> None:
    assert Lsn.parse(str(Lsn(value))) == value


@given(LSNS, LSNS)
def test_positions_order_like_the_bytes_they_count(one: int, other: int) -> None:
    assert (Lsn(one) < Lsn(other)) == (one < other)
    assert Lsn(one) - Lsn(other) == one - other


def test_it_prints_as_postgres_does() -> None:
    assert str(Lsn(0x16_B374D848)) == "16/B374D848"
    assert str(Lsn(0)) == "0/0"
    assert repr(Lsn(0x154BE90)) == "Lsn(0/154BE90)"


@pytest.mark.parametrize(
    "text", ["", "0", "0/", "/0", "0/123456789", "g/0", "0/0 ", " 0/0", "0/0/0", "-1/0"]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_position_has_64_bits(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        Lsn(value)
