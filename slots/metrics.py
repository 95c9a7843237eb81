"""The walferry_slot_ metrics: every name, label and help text, and nothing else.

They are made from the latest reading when somebody looks. A slot that is gone is gone
from them at once, and after a reading that failed there is nothing but the failure:
an old number would look like a good one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slots.state import History, WalStatus, budget, time_to_loss_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from prometheus_client import CollectorRegistry

    from slots.alarms import Alarm
    from slots.state import Limits, Reading, Slot

_LABELS: Final = ("slot_name", "slot_type", "database")


class SlotMetrics(Collector):
    """What /metrics says of slots; told by the watch after every poll.

    Args:
        registry: where it is found from then on.
        limits: for the forecast where the user states a disk limit.
        names: the slots watched; empty is all of them.

    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        limits: Limits,
        names: Collection[str] = (),
    ) -> None:
        self._limits = limits
        self._names = frozenset(names)
        self._reading: Reading | None = None
        self._history = History()
        self._alarms: tuple[Alarm, ...] = ()
        self._success: float | None = None
        registry.register(self)

    def poll_succeeded(
        self, reading: Reading, history: History, alarms: tuple[Alarm, ...]
    ) -> None:
        """Show a reading and the alarms that are up."""
        self._reading, self._history, self._alarms = reading, history, alarms
        self._success = 1.0

    def poll_failed(self, alarms: tuple[Alarm, ...]) -> None:
        """Show that there is no reading, and the alarms that are up."""
        self._reading, self._alarms, self._success = None, alarms, 0.0

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Make the metrics; the registry calls it."""
        if self._success is None:
            return
        success = GaugeMetricFamily(
            "walferry_slots_poll_success",
            "Whether the latest reading of the slots succeeded",
        )
        success.add_metric((), self._success)
        yield success
        yield self._alarm_family()
        if self._reading is not None:
            yield from self._slot_families(self._reading)

    def _alarm_family(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "walferry_slot_alarm",
            "Alarms that are up; those of the server have no slot name",
            labels=(*_LABELS, "alarm", "level"),
        )
        for alarm in self._alarms:
            labels = (alarm.slot_name, alarm.slot_type, alarm.database)
            family.add_metric((*labels, alarm.kind.value, alarm.level.word), 1.0)
        return family

    def _slot_families(self, reading: Reading) -> Iterable[GaugeMetricFamily]:
        watched = [
            slot
            for slot in reading.slots
            if not self._names or slot.name in self._names
        ]
        for name, text, measure in _MEASURES:
            yield _family(name, text, watched, partial(measure, reading))
        yield _family(
            "time_to_loss_seconds",
            "Forecast until what the slot may retain is used up; absent when unbounded",
            watched,
            lambda slot: self._time_to_loss_s(reading, slot),
        )
        yield _status_family(watched)

    def _time_to_loss_s(self, reading: Reading, slot: Slot) -> float | None:
        left = budget(reading, slot, self._limits)
        return time_to_loss_s(left, self._history.trend(slot))


_MEASURES: Final[
    tuple[tuple[str, str, Callable[[Reading, Slot], float | None]], ...]
] = (
    (
        "retained_bytes",
        "WAL that the server keeps for the slot",
        lambda reading, slot: reading.retained_bytes(slot),
    ),
    (
        "lag_bytes",
        "WAL that the slot's consumer has not confirmed",
        lambda reading, slot: reading.lag_bytes(slot),
    ),
    (
        "transaction_gap_bytes",
        "WAL kept although confirmed, for open write transactions",
        lambda reading, slot: reading.gap_bytes(slot),
    ),
    (
        "safe_bytes",
        "WAL that may be written until the slot is in danger; absent without a limit",
        lambda _reading, slot: slot.safe_wal_bytes,
    ),
    (
        "active",
        "Whether somebody streams from the slot",
        lambda _reading, slot: float(slot.active),
    ),
    (
        "catalog_xmin_age_transactions",
        "Age of the oldest catalog rows that VACUUM has to keep for the slot",
        lambda _reading, slot: None if slot.is_lost else slot.catalog_xmin_age,
    ),
)


def _family(
    name: str,
    text: str,
    slots: Iterable[Slot],
    measure: Callable[[Slot], float | None],
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"walferry_slot_{name}", text, labels=_LABELS)
    for slot in slots:
        value = measure(slot)
        if value is not None:
            family.add_metric(_labels(slot), value)
    return family


def _status_family(slots: Iterable[Slot]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "walferry_slot_wal_status",
        "What the server says of the WAL the slot needs: 1 for the status it has",
        labels=(*_LABELS, "wal_status"),
    )
    for slot in slots:
        if slot.wal_status is not None:
            for status in WalStatus:
                value = float(status is slot.wal_status)
                family.add_metric((*_labels(slot), status.value), value)
    return family


def _labels(slot: Slot) -> tuple[str, str, str]:
    return slot.name, slot.slot_type, slot.database or ""
