"""The lock of a relay's name: the same in every version, another for another name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.leadership import key_of

_MAX = (1 << 63) - 1


def test_two_versions_of_walferry_agree_on_a_lock() -> None:
    """A number that changed would let both stream during an upgrade."""
    assert key_of("shop.walferry") == -2748401307087405438


@given(name=st.text())
def test_the_key_of_any_name_fits_a_bigint(name: str) -> None:
    assert -_MAX - 1 <= key_of(name) <= _MAX
    assert key_of(name) == key_of(name)


@given(names=st.sets(st.text(), min_size=2, max_size=50))
def test_each_name_has_a_lock_of_its_own(names: set[str]) -> None:
    assert len({key_of(name) for name in names}) == len(names)
