"""Every kind of trouble is found, with its level, its numbers and a remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slots.lsn import Lsn
from slots.state import (
    Blocker,
    Finding,
    Kind,
    Level,
    Limits,
    Reading,
    Slot,
    Threshold,
    Trend,
    WalStatus,
    health,
    server_health,
    worst,
)
from slots.state.units import GB, MB
from tests.slot_readings import BEGIN, at, behind, idle, reading, slot

GROWING = Trend(growth_bytes_s=1 * MB, is_settled=True)


def found(
    one: Slot,
    trend: Trend = Trend(),  # noqa: B008 - frozen
    limits: Limits = Limits(),  # noqa: B008 - frozen
    look: Reading | None = None,
    was: dict[Kind, Level] | None = None,
) -> dict[Kind, Finding]:
    findings = health(look or reading(one), one, trend, limits, was or {})
    for one_finding in findings:
        assert one_finding.remedy
        assert "\n" not in one_finding.text
    return {finding.kind: finding for finding in findings}


def test_a_slot_that_keeps_up_is_well() -> None:
    assert found(slot()) == {}
    assert worst(()) is Level.OK


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wal_status": WalStatus.LOST}, "wal_removed: it needed more WAL"),
        (
            {"wal_status": WalStatus.LOST, "invalidation_reason": "idle_timeout"},
            "idle_timeout: nobody used it",
        ),
        ({"conflicting": True}, "rows_removed: rows it needed"),
        ({"invalidation_reason": "brand_new"}, "brand_new: see the server log"),
    ],
)
def test_a_lost_slot_is_critical_and_nothing_else(
    changes: dict[str, Any], said: str
) -> None:
    one = idle(**changes, catalog_xmin_age=10**9)

    findings = found(one, Trend(inactive_s=10**6))

    assert list(findings) == [Kind.LOST]
    assert findings[Kind.LOST].level is Level.CRITICAL
    assert said in findings[Kind.LOST].text
    assert str(one.confirmed_flush_lsn) in findings[Kind.LOST].text


def test_a_lost_slot_that_never_confirmed_says_so() -> None:
    one = slot(wal_status=WalStatus.LOST, confirmed_flush_lsn=None)

    assert "confirmed nothing" in found(one)[Kind.LOST].text


def test_an_unreserved_slot_can_still_be_saved() -> None:
    one = replace(behind(900 * MB), wal_status=WalStatus.UNRESERVED)

    assert found(one)[Kind.UNRESERVED].level is Level.CRITICAL
    assert "catch up" in found(one)[Kind.UNRESERVED].remedy


def test_a_slot_ahead_of_a_primarys_wal_is_critical() -> None:
    one = behind(-30 * MB)

    assert found(one)[Kind.AHEAD].level is Level.CRITICAL
    assert str(one.confirmed_flush_lsn) in found(one)[Kind.AHEAD].text


def test_lag_and_retained_are_judged_by_their_limits() -> None:
    one = replace(behind(6 * GB), safe_wal_bytes=None)
    limits = Limits(retained=Threshold(1 * GB))

    findings = found(one, limits=limits)

    assert findings[Kind.LAG].level is Level.CRITICAL
    assert findings[Kind.RETAINED].level is Level.WARNING


def test_an_earlier_level_is_left_with_a_margin() -> None:
    one = slot(
        confirmed_flush_lsn=Lsn(BEGIN - round(0.95 * GB)),
        restart_lsn=Lsn(BEGIN - round(0.95 * GB)),
        safe_wal_bytes=None,
    )
    look = reading(one)

    assert Kind.LAG not in found(one, look=look)
    assert Kind.LAG in found(one, look=look, was={Kind.LAG: Level.WARNING})


@pytest.mark.parametrize(
    ("lag", "level"), [(400, None), (500, Level.WARNING), (850, Level.CRITICAL)]
)
def test_the_share_of_the_budget_is_judged(lag: int, level: Level | None) -> None:
    one = behind(lag * MB)

    finding = found(one).get(Kind.BUDGET)

    assert (finding.level if finding else None) is level


def test_the_time_to_loss_is_judged_by_the_rate() -> None:
    one = behind(100 * MB)

    finding = found(one, GROWING)[Kind.TIME_TO_LOSS]

    assert finding.level is Level.CRITICAL
    assert "15 min" in finding.text
    assert "1 MB/s" in finding.text
    assert Kind.TIME_TO_LOSS not in found(one)


def test_a_disk_limit_of_the_users_is_a_budget_too() -> None:
    one = replace(behind(900 * MB), safe_wal_bytes=None)

    finding = found(one, GROWING, Limits(disk=1 * GB))[Kind.BUDGET]

    assert finding.level is Level.CRITICAL
    assert "the disk limit" in finding.text


OLD = Blocker(xid=7, age=9, pid=3, open_s=3600.0)


def test_a_transaction_gap_and_an_old_transaction_are_found() -> None:
    one = slot(
        confirmed_flush_lsn=Lsn(BEGIN),
        restart_lsn=Lsn(BEGIN - 5 * GB),
        safe_wal_bytes=None,
    )

    findings = found(one, look=reading(one, blockers=(OLD,)))

    assert findings[Kind.TRANSACTION_GAP].level is Level.WARNING
    assert findings[Kind.TRANSACTION_AGE].level is Level.WARNING
    assert "1 h" in findings[Kind.TRANSACTION_AGE].text


def test_an_old_transaction_matters_to_a_slot_that_waits_for_it_only() -> None:
    made, being_made = slot(), slot(confirmed_flush_lsn=None, restart_lsn=Lsn(BEGIN))

    assert found(made, look=reading(made, blockers=(OLD,))) == {}
    assert Kind.TRANSACTION_AGE in found(
        being_made, look=reading(being_made, blockers=(OLD,))
    )
    hidden = replace(OLD, open_s=None)
    assert found(being_made, look=reading(being_made, blockers=(hidden,))) == {}


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(299, None), (300, Level.WARNING), (1800, Level.CRITICAL), (None, Level.WARNING)],
)
def test_a_slot_that_nobody_reads_is_judged_by_how_long(
    seconds: float | None, level: Level | None
) -> None:
    finding = found(idle(), Trend(inactive_s=seconds)).get(Kind.INACTIVE)

    assert (finding.level if finding else None) is level


def test_inactivity_that_nobody_minds_is_no_finding() -> None:
    limits = Limits(inactive=Threshold())

    assert found(idle(), Trend(), limits) == {}
    assert found(idle(), Trend(inactive_s=10**6), limits) == {}


def test_a_standbys_copy_is_not_expected_to_be_read() -> None:
    one = idle(synced=True, inactive_since=at(-9999))
    look = reading(one, is_in_recovery=True)

    assert found(one, Trend(inactive_s=9999), look=look) == {}
    assert Kind.INACTIVE in found(one, Trend(inactive_s=9999))


def test_a_consumer_without_progress_is_found() -> None:
    one = behind(20 * MB)

    assert found(one, Trend(stuck_s=301.0))[Kind.NO_PROGRESS].level is Level.WARNING


@pytest.mark.parametrize(
    ("changes", "level", "rows"),
    [
        ({"catalog_xmin_age": 9_999_999}, None, ""),
        ({"catalog_xmin_age": 10_000_000}, Level.WARNING, "catalog rows"),
        (
            {"catalog_xmin_age": None, "xmin_age": 100_000_000},
            Level.CRITICAL,
            "keep rows",
        ),
        ({"catalog_xmin_age": None}, None, ""),
    ],
)
def test_old_row_versions_are_found(
    changes: dict[str, Any], level: Level | None, rows: str
) -> None:
    finding = found(slot(**changes)).get(Kind.XMIN_AGE)

    assert (finding.level if finding else None) is level
    assert rows in (finding.text if finding else "")


def test_no_wal_limit_is_a_standing_warning_unless_switched_off() -> None:
    look = reading(slot(), slot_wal_limit_bytes=None)

    (finding,) = server_health(look, Limits())

    assert finding.kind is Kind.NO_WAL_LIMIT
    assert finding.level is Level.WARNING
    assert server_health(look, Limits(no_wal_limit=False)) == ()
    assert server_health(reading(slot_wal_limit_bytes=None), Limits()) == ()


@pytest.mark.parametrize(
    ("used", "level"), [(7, None), (8, Level.WARNING), (10, Level.CRITICAL)]
)
def test_slots_running_out_are_found(used: int, level: Level | None) -> None:
    look = reading(*(slot(f"s{number}") for number in range(used)))

    findings = server_health(look, Limits())

    assert [one.level for one in findings] == ([level] if level else [])
    assert server_health(reading(max_slots=0), Limits()) == ()
