"""Transaction ids of rows, widened."""

from hypothesis import given
from hypothesis import strategies as st

from cdc.xid import MASK, widen

XMAX = st.integers(min_value=1 << 33, max_value=(1 << 62))


@given(xmax=XMAX, age=st.integers(min_value=0, max_value=MASK))
def test_every_row_of_the_last_four_billion_transactions_finds_its_own_id(
    xmax: int, age: int
) -> None:
    xid = xmax - age
    assert widen(xid & MASK, xmax) == xid


@given(xmax=XMAX, xmin=st.integers(min_value=0, max_value=MASK))
def test_no_row_is_from_the_future_and_none_is_taken_for_an_older_one(
    xmax: int, xmin: int
) -> None:
    widened = widen(xmin, xmax)
    assert xmax - MASK <= widened <= xmax
    assert widened & MASK == xmin
