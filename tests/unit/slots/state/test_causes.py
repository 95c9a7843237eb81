"""Whoever holds WAL is named, with what is at stake and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slots.lsn import Lsn
from slots.state import (
    Blocker,
    Cause,
    Limits,
    Reading,
    Slot,
    Trend,
    WalStatus,
    causes,
    stake,
)
from slots.state.causes import describe_blocker
from slots.state.units import GB, MB
from tests.slot_readings import BEGIN, at, behind, idle, reading, slot

OLD = Blocker(
    xid=7,
    age=9,
    pid=3,
    database="crm",
    user="joe",
    application="batch",
    address="10.0.0.9",
    state="idle in transaction",
    open_s=3600.0,
    query_s=60.0,
)
PREPARED = Blocker(
    xid=8, age=8, gid="gid-1", database="crm", user="joe", state="prepared", open_s=9.0
)


def only(one: Slot, look: Reading | None = None, trend: Trend | None = None) -> Cause:
    (cause,) = causes(look or reading(one), one, trend or Trend())
    assert cause.remedy
    return cause


def test_a_slot_that_keeps_up_has_no_cause() -> None:
    assert causes(reading(slot()), slot(), Trend()) == ()


def test_a_lost_slot_says_why_and_since_when() -> None:
    one = idle(
        wal_status=WalStatus.LOST,
        invalidation_reason="wal_removed",
        inactive_since=at(0),
        catalog_xmin_age=20_000_000,
    )

    cause = only(one)

    assert cause.who == "lost"
    assert "wal_removed" in cause.text
    assert "2026-12-01 12:00:00 UTC" in cause.text
    assert "20M transactions) holds VACUUM back no longer" in cause.text
    assert "slots drop a" in cause.remedy
    bare = only(replace(one, inactive_since=None, catalog_xmin_age=None))
    assert "since" not in bare.text


def test_an_inactive_slot_says_since_when_and_what_waits() -> None:
    one = replace(behind(5 * MB), active=False, inactive_since=at(-90))

    cause = only(one, trend=Trend(inactive_s=90))

    assert cause.who == "inactive"
    assert cause.held_bytes == 5 * MB
    assert "since 2026-12-01 11:58:30 UTC (1 min 30 s)" in cause.text
    assert cause.remedy.endswith("and with it what waits")


def test_an_inactive_slot_of_an_older_server_says_what_is_not_known() -> None:
    cause = only(idle(slot_type="physical", plugin=None))

    assert "Postgres tells from 17 on" in cause.text
    assert "standby" in cause.remedy
    assert "what waits" not in cause.remedy


def test_a_standbys_copy_that_nobody_reads_is_no_cause() -> None:
    one = idle(synced=True)

    assert causes(reading(one, is_in_recovery=True), one, Trend()) == ()


def test_a_consumer_that_is_behind_is_named() -> None:
    one = behind(30 * MB, active_address="10.1.1.1", active_reply_at=at(-12))

    cause = only(one, trend=Trend(stuck_s=400))

    assert cause.who == "consumer"
    assert cause.held_bytes == 30 * MB
    for known in ("pid 42", "reader", "10.1.1.1", "6 min 40 s", "12 s ago"):
        assert known in cause.text
    assert "nothing for" not in only(behind(30 * MB)).text


def test_a_consumer_less_than_a_megabyte_behind_is_not_worth_a_word() -> None:
    one = behind(1000)

    assert causes(reading(one), one, Trend()) == ()


def failover(**changes: object) -> Slot:
    return replace(behind(30 * MB), failover=True, **changes)  # type: ignore[arg-type]


def standby(**changes: object) -> Slot:
    physical = {"slot_type": "physical", "plugin": None, "database": None}
    return slot("standby_1", **(physical | changes))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "slot standby_1 does not exist"),
        ((standby(wal_status=WalStatus.LOST),), "slot standby_1 is lost"),
        ((standby(active=False),), "slot standby_1 is inactive"),
        (
            (standby(active=False, inactive_since=at(0)),),
            "inactive since 2026-12-01 12:00:00 UTC",
        ),
        (
            (standby(restart_lsn=Lsn(BEGIN - 100 * MB)),),
            "slot standby_1 is 100 MB behind",
        ),
    ],
)
def test_a_standby_that_failover_slots_wait_for_is_named(
    others: tuple[Slot, ...], said: str
) -> None:
    one = failover()
    look = reading(one, *others, synchronized_standby_slots=("standby_1",))

    cause = only(one, look)

    assert cause.who == "standby"
    assert said in cause.text
    assert "synchronized_standby_slots" in cause.remedy


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (failover(), ("standby_1",)),
        (failover(), ()),
        (behind(30 * MB), ("standby_1",)),
        (failover(), None),
    ],
)
def test_a_standby_that_keeps_up_is_not_to_blame(
    one: Slot, wanted: tuple[str, ...] | None
) -> None:
    look = reading(one, standby(), synchronized_standby_slots=wanted)

    assert only(one, look).who == "consumer"


def test_a_write_transaction_is_named_with_everything_known() -> None:
    one = behind(0, 20 * MB)

    cause = only(one, reading(one, blockers=(OLD,)))

    assert cause.who == "transaction"
    assert cause.held_bytes == 20 * MB
    for known in (
        "pid 3",
        "xid 7",
        "database crm",
        "user joe",
        "application batch",
        "from 10.0.0.9",
        "idle in transaction",
        "open for 1 h",
        "latest query 1 min ago",
    ):
        assert known in cause.text
    assert "pg_terminate_backend(3)" in cause.remedy


def test_a_prepared_transaction_is_named_with_its_statements() -> None:
    one = behind(0, 20 * MB)

    cause = only(one, reading(one, blockers=(PREPARED,)))

    assert cause.who == "prepared_transaction"
    assert "'gid-1'" in cause.text
    assert "ROLLBACK PREPARED 'gid-1' in database crm" in cause.remedy


def test_the_three_oldest_are_named_and_the_young_are_not() -> None:
    one = behind(0, 20 * MB)
    young = replace(OLD, xid=99, open_s=0.2)
    hidden = Blocker(xid=5, age=20)
    look = reading(one, blockers=(young, hidden, OLD, PREPARED, OLD))

    found = causes(look, one, Trend())

    assert [cause.held_bytes for cause in found] == [20 * MB, None, None]
    assert "transaction 5" in found[0].text
    assert "xid 99" not in "".join(cause.text for cause in found)


def test_the_young_are_named_where_nobody_else_can_hold_so_much() -> None:
    young = replace(OLD, open_s=0.2)
    one, little = behind(0, 20 * MB), behind(0, 900)

    assert only(one, reading(one, blockers=(young,))).who == "transaction"
    assert causes(reading(little, blockers=(young,)), little, Trend()) == ()


def test_a_gap_that_nobody_holds_any_more_goes_by_itself() -> None:
    one = behind(0, 20 * MB)

    assert only(one).who == "ended_transaction"
    assert causes(reading(behind(0, 900)), behind(0, 900), Trend()) == ()


def test_a_slot_being_made_names_who_it_waits_for() -> None:
    one = slot(confirmed_flush_lsn=None)

    found = causes(reading(one, blockers=(OLD,)), one, Trend())

    assert [cause.who for cause in found] == ["creation", "transaction"]


def test_a_session_that_is_not_to_be_seen_is_a_transaction_id() -> None:
    assert describe_blocker(Blocker(xid=5, age=1)) == "transaction 5"


HELD = "100 MB of WAL retained"
LIMIT = "max_slot_wal_keep_size"
SOON = "used up in 15 min"
GROWING = Trend(growth_bytes_s=1.0 * MB, is_settled=True)


@pytest.mark.parametrize(
    ("one", "trend", "limits", "said"),
    [
        (
            behind(100 * MB),
            GROWING,
            Limits(),
            f"{HELD}, growing by 1 MB/s; 900 MB left of {LIMIT} (10% used), {SOON}",
        ),
        (
            behind(100 * MB),
            Trend(),
            Limits(),
            f"{HELD}; 900 MB left of {LIMIT} (10% used)",
        ),
        (
            replace(behind(100 * MB), safe_wal_bytes=None),
            Trend(),
            Limits(),
            f"{HELD}; nothing limits it ({LIMIT} is -1): it can fill the disk",
        ),
        (
            replace(behind(256 * MB), safe_wal_bytes=None),
            Trend(),
            Limits(disk=1 * GB),
            "256 MB of WAL retained; 768 MB left of the disk limit (25% used)",
        ),
        (
            replace(behind(100 * MB), wal_status=WalStatus.UNRESERVED),
            Trend(),
            Limits(),
            f"{HELD}; {LIMIT} is used up: the next checkpoint takes the WAL away",
        ),
        (
            slot(wal_status=WalStatus.LOST),
            Trend(),
            Limits(),
            "nothing is retained any more, and nothing can be saved",
        ),
    ],
)
def test_what_is_at_stake_is_said(
    one: Slot, trend: Trend, limits: Limits, said: str
) -> None:
    assert stake(reading(one), one, trend, limits) == said
