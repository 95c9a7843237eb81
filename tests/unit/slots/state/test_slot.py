"""What a slot's row says of it."""

from __future__ import annotations

from typing import Any

import pytest

from slots.lsn import Lsn
from slots.state import WalStatus
from tests.slot_readings import slot


@pytest.mark.parametrize(
    "changes",
    [
        {"wal_status": WalStatus.LOST},
        {"invalidation_reason": "idle_timeout"},
        {"conflicting": True},
    ],
)
def test_a_slot_is_lost_in_any_of_three_ways(changes: dict[str, Any]) -> None:
    assert slot(**changes).is_lost
    assert not slot(conflicting=False).is_lost


def test_a_slot_without_a_confirmed_position_is_being_made() -> None:
    assert slot(confirmed_flush_lsn=None).is_being_made
    assert not slot().is_being_made
    assert not slot(slot_type="physical", confirmed_flush_lsn=None).is_being_made
    assert not slot(confirmed_flush_lsn=None, wal_status=WalStatus.LOST).is_being_made


def test_a_physical_slots_position_is_its_restart_lsn() -> None:
    one = slot(restart_lsn=Lsn(1), confirmed_flush_lsn=Lsn(2))

    assert one.position == 2
    assert slot(slot_type="physical", restart_lsn=Lsn(1)).position == 1
