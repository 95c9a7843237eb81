"""The relay's metrics: every name, label and help text, and nothing else.

Numbers are kept per batch, never per event, so that counting costs nothing; gauges that
depend on the time of day are computed when somebody looks.
"""

from __future__ import annotations

import time
from collections import deque
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cdc.lifecycle import State
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

_LATENCY_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)


class RelayMetrics:
    """What a relay counts, on a registry of its own.

    Attributes:
        registry: hand it to the endpoint.

    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._oldest: deque[float] = deque()
        self.events = Counter(
            "walferry_events_published",
            "Events acknowledged by the broker",
            registry=self.registry,
        )
        self.transactions = Counter(
            "walferry_transactions_published",
            "Transactions with events of which every event is acknowledged",
            registry=self.registry,
        )
        self.skipped = Counter(
            "walferry_changes_skipped",
            "Changes that are no outbox insert, by kind",
            ["kind"],
            registry=self.registry,
        )
        self.errors = Counter(
            "walferry_errors",
            "Errors that ended a session or an attempt, by kind",
            ["kind"],
            registry=self.registry,
        )
        self.sessions = Counter(
            "walferry_sessions_started",
            "Replication streams started",
            registry=self.registry,
        )
        self.in_flight_events = Gauge(
            "walferry_in_flight_events",
            "Events handed to the sink and not acknowledged",
            registry=self.registry,
        )
        self.in_flight_bytes = Gauge(
            "walferry_in_flight_bytes",
            "What those events weigh against the window",
            registry=self.registry,
        )
        self.commit_to_ack = Histogram(
            "walferry_commit_to_ack_seconds",
            "From commit (server clock) to acknowledgement (our clock), one observation"
            " a batch: the oldest commit in it",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.last_ack = Gauge(
            "walferry_last_ack_timestamp_seconds",
            "When the broker last acknowledged something, Unix time; 0 if never",
            registry=self.registry,
        )
        self._confirmed = Gauge(
            "walferry_confirmed_lsn_bytes",
            "Position confirmed to the server, as a number of bytes of WAL",
            registry=self.registry,
        )
        oldest = Gauge(
            "walferry_oldest_unacked_seconds",
            "Age of the oldest commit that waits for its acknowledgement, else 0",
            registry=self.registry,
        )
        oldest.set_function(self.oldest_unacked_s)
        self._state = Gauge(
            "walferry_state",
            "1 for the state the relay is in, 0 for the others",
            ["state"],
            registry=self.registry,
        )
        self._leader = Gauge(
            "walferry_leader",
            "1 while this relay streams from the slot, else 0",
            registry=self.registry,
        )
        info = Gauge(
            "walferry_build_info",
            "Always 1; the version is the label",
            ["version"],
            registry=self.registry,
        )
        info.labels(version=version("walferry")).set(1)
        self.confirmed_lsn: Lsn = ZERO
        self.state(State.STARTING)

    def state(self, current: State) -> None:
        """Show a state."""
        for state in State:
            self._state.labels(state=state.value).set(float(state is current))
        is_leader = current in (State.STREAMING, State.DRAINING)
        self._leader.set(float(is_leader))

    def sent(self, *, count: int, size_bytes: int, committed_at_s: float) -> None:
        """Take note of a batch given to the sink."""
        self.in_flight_events.inc(count)
        self.in_flight_bytes.inc(size_bytes)
        self._oldest.append(committed_at_s)

    def acknowledged(
        self, *, count: int, size_bytes: int, transactions: int, now_s: float
    ) -> None:
        """Take note that the oldest batch in flight is acknowledged."""
        self.in_flight_events.dec(count)
        self.in_flight_bytes.dec(size_bytes)
        self.events.inc(count)
        self.transactions.inc(transactions)
        self.last_ack.set(now_s)
        # The server's clock may be ahead of ours; less than nothing is nothing.
        self.commit_to_ack.observe(max(0.0, now_s - self._oldest.popleft()))

    def forget_in_flight(self) -> None:
        """Take note that a session ended: what was in flight will be read again."""
        self._oldest.clear()
        self.in_flight_events.set(0)
        self.in_flight_bytes.set(0)

    def confirmed(self, position: Lsn) -> None:
        """Show the confirmed position."""
        self.confirmed_lsn = position
        self._confirmed.set(float(position))

    def oldest_unacked_s(self) -> float:
        """Tell the age of the oldest unacknowledged commit in seconds, 0 if none."""
        return max(0.0, time.time() - self._oldest[0]) if self._oldest else 0.0

    def touch(self, kinds: Sequence[str]) -> None:
        """Make error kinds visible at 0, so that a first error is an increase."""
        for kind in kinds:
            self.errors.labels(kind=kind)
