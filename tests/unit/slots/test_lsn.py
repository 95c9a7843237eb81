"""Positions parse, print, order and subtract like Postgres' own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.lsn import ZERO, Lsn


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_what_is_printed_reads_back(value: int) -> None:
    assert Lsn.parse(str(Lsn(value))) == value
    assert repr(Lsn(value)) == f"Lsn({Lsn(value)})"


def test_it_prints_as_postgres_does() -> None:
    assert str(Lsn(0x16B374D848)) == "16/B374D848"
    assert str(ZERO) == str(Lsn()) == "0/0"
    assert str(Lsn(2**64 - 1)) == "FFFFFFFF/FFFFFFFF"


@given(
    st.integers(min_value=0, max_value=2**64 - 1),
    st.integers(min_value=0, max_value=2**64 - 1),
)
def test_positions_order_and_subtract_as_numbers_and_not_as_texts(
    one: int, other: int
) -> None:
    assert (Lsn(one) < Lsn(other)) == (one < other)
    assert Lsn(one) - Lsn(other) == one - other
    assert Lsn.parse("0/9") < Lsn.parse("0/10")
    assert Lsn.parse("9/FF") < Lsn.parse("10/0")


def test_a_difference_is_bytes() -> None:
    assert Lsn.parse("1/0") - Lsn.parse("0/FFFFFFFF") == 1


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "g/0", "0/1/2", "123456789/0"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_number_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        Lsn(value)
