"""Distances: never negative, and unknown where a position is."""

from __future__ import annotations

from slots.lsn import Lsn
from slots.state import WalStatus
from slots.state.units import MB
from tests.slot_readings import BEGIN, behind, reading, slot


def test_retained_is_lag_and_gap() -> None:
    one = behind(30 * MB, 12 * MB)
    look = reading(one)

    assert look.lag_bytes(one) == 30 * MB
    assert look.gap_bytes(one) == 12 * MB
    assert look.retained_bytes(one) == 42 * MB


def test_a_physical_slot_has_no_gap() -> None:
    one = slot(slot_type="physical", restart_lsn=Lsn(BEGIN - 5), plugin=None)

    assert reading(one).gap_bytes(one) is None
    assert reading(one).lag_bytes(one) == 5


def test_a_lost_slot_retains_nothing_that_is_known() -> None:
    one = behind(30 * MB, wal_status=WalStatus.LOST)
    look = reading(one)

    assert look.retained_bytes(one) is None
    assert look.lag_bytes(one) is None
    assert look.gap_bytes(one) is None
    assert look.ahead_bytes(one) == 0


def test_a_slot_ahead_of_the_wal_retains_nothing() -> None:
    one = behind(-30 * MB)
    look = reading(one)

    assert look.retained_bytes(one) == 0
    assert look.lag_bytes(one) == 0
    assert look.ahead_bytes(one) == 30 * MB
    assert reading(one, is_in_recovery=True).ahead_bytes(one) == 0


def test_a_standby_that_has_replayed_nothing_knows_no_distances() -> None:
    one = behind(30 * MB)
    look = reading(one, wal=None)

    assert look.retained_bytes(one) is None
    assert look.lag_bytes(one) is None
    assert look.ahead_bytes(one) == 0


def test_a_slot_is_found_by_name() -> None:
    one = slot("b")

    assert reading(slot("a"), one).slot("b") is one
    assert reading(slot("a")).slot("b") is None
    assert reading().server.major == 18
