"""The walferry_slot_ metrics: their names, labels and what is left out."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from slots.alarms import Alarms
from slots.lsn import Lsn
from slots.metrics import SlotMetrics
from slots.state import History, Limits, Reading, WalStatus
from slots.state.units import MB
from tests.slot_readings import BEGIN, at, behind, idle, reading, slot

LABELS = {"slot_name": "a", "slot_type": "logical", "database": "shop"}


class Shown:
    """Metrics on a registry, fed by readings."""

    def __init__(self, *names: str) -> None:
        self.registry = CollectorRegistry()
        limits = Limits()
        self.metrics = SlotMetrics(self.registry, limits=limits, names=names)
        self.history = History()
        self.alarms = Alarms(limits)

    def look(self, one: Reading) -> None:
        self.alarms.observe(one, self.history)
        self.metrics.poll_succeeded(one, self.history, self.alarms.up)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, LABELS | labels)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


def test_before_the_first_look_there_is_nothing() -> None:
    assert Shown().text() == ""


def test_a_reading_is_shown_under_the_fixed_names() -> None:
    shown = Shown()

    shown.look(reading(behind(30 * MB, 10 * MB)))

    assert shown.value("walferry_slot_retained_bytes") == 40 * MB
    assert shown.value("walferry_slot_lag_bytes") == 30 * MB
    assert shown.value("walferry_slot_transaction_gap_bytes") == 10 * MB
    assert shown.value("walferry_slot_safe_bytes") == 960 * MB
    assert shown.value("walferry_slot_active") == 1
    assert shown.value("walferry_slot_catalog_xmin_age_transactions") == 5
    assert shown.value("walferry_slot_time_to_loss_seconds") is None
    assert shown.registry.get_sample_value("walferry_slots_poll_success") == 1


def test_the_status_is_one_of_four() -> None:
    shown = Shown()

    shown.look(reading(slot(wal_status=WalStatus.EXTENDED)))

    values = {
        status.value: shown.value("walferry_slot_wal_status", wal_status=status.value)
        for status in WalStatus
    }
    assert values == {"reserved": 0, "extended": 1, "unreserved": 0, "lost": 0}


def test_a_forecast_is_shown_where_there_is_one() -> None:
    shown = Shown()
    for moment in (0, 100):
        shown.look(
            reading(
                idle(inactive_since=at(-100), safe_wal_bytes=500 * MB),
                seconds=moment,
                wal=BEGIN + moment * MB,
            )
        )

    assert shown.value("walferry_slot_time_to_loss_seconds") == 500


def test_a_lost_slot_has_no_sizes_and_no_xmin_age() -> None:
    shown = Shown()

    shown.look(reading(idle(wal_status=WalStatus.LOST, safe_wal_bytes=None)))

    assert shown.value("walferry_slot_retained_bytes") is None
    assert shown.value("walferry_slot_catalog_xmin_age_transactions") is None
    assert shown.value("walferry_slot_wal_status", wal_status="lost") == 1
    assert shown.value("walferry_slot_alarm", alarm="lost", level="critical") == 1


def test_a_physical_slot_has_no_database_and_no_gap() -> None:
    shown = Shown()
    one = slot(
        slot_type="physical",
        plugin=None,
        database=None,
        confirmed_flush_lsn=None,
        restart_lsn=Lsn(BEGIN - 7),
        wal_status=None,
    )

    shown.look(reading(one))

    labels = {"slot_type": "physical", "database": ""}
    assert shown.value("walferry_slot_lag_bytes", **labels) == 7
    assert shown.value("walferry_slot_transaction_gap_bytes", **labels) is None
    assert "walferry_slot_wal_status{" not in shown.text()


def test_a_slot_that_is_gone_is_gone_from_the_metrics() -> None:
    shown = Shown()
    shown.look(reading(slot()))

    shown.look(reading(slot("b"), seconds=10))

    assert shown.value("walferry_slot_retained_bytes") is None
    assert shown.value("walferry_slot_retained_bytes", slot_name="b") == 0


def test_after_a_failed_reading_no_number_is_shown() -> None:
    shown = Shown()
    shown.look(reading(slot()))

    shown.alarms.failed("away", at(10))
    shown.metrics.poll_failed(shown.alarms.up)

    assert shown.registry.get_sample_value("walferry_slots_poll_success") == 0
    assert "walferry_slot_retained_bytes" not in shown.text()
    assert 'alarm="reading_failed"' in shown.text()


def test_slots_that_are_not_named_are_not_shown() -> None:
    shown = Shown("a")

    shown.look(reading(slot("a"), slot("b")))

    assert 'slot_name="b"' not in shown.text()
