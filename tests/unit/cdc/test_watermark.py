"""The watermark: contiguous, monotonic, never beyond what is acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cdc.watermark import Ticket, Watermark
from slots.lsn import Lsn


class WatermarkModel(RuleBasedStateMachine):
    """Compares the watermark with one that looks at everything after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.watermark = Watermark(Lsn(100))
        self.clock = 100
        self.tickets: list[Ticket] = []
        self.is_acknowledged: list[bool] = []
        self.offered = 100
        self.confirmed = 100

    @rule(ends=st.booleans(), step=st.integers(1, 50))
    def track(self, ends: bool, step: int) -> None:  # noqa: FBT001 - drawn by name
        self.clock += step
        end = Lsn(self.clock) if ends else None
        self.tickets.append(self.watermark.track(end))
        self.is_acknowledged.append(False)

    @precondition(lambda self: not all(self.is_acknowledged))
    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        open_ones = [n for n, done in enumerate(self.is_acknowledged) if not done]
        number = data.draw(st.sampled_from(open_ones))
        self.is_acknowledged[number] = True
        self.watermark.resolve(self.tickets[number])
        self.look()

    @rule(step=st.integers(-60, 50))
    def offer(self, step: int) -> None:
        position = Lsn(max(0, self.clock + step))
        self.clock = max(self.clock, position)
        self.offered = max(self.offered, position)
        self.watermark.offer(position)
        self.look()

    @precondition(lambda self: any(t.end_lsn for t in self.tickets))
    @rule(data=st.data())
    def track_in_the_wrong_order(self, data: st.DataObject) -> None:
        highest = max(ticket.end_lsn or 0 for ticket in self.tickets)
        with pytest.raises(ValueError, match="is not above"):
            self.watermark.track(Lsn(data.draw(st.integers(0, highest))))

    def look(self) -> None:
        for ticket, is_acknowledged in zip(
            self.tickets, self.is_acknowledged, strict=True
        ):
            if not is_acknowledged:
                return
            self.confirmed = max(self.confirmed, ticket.end_lsn or 0)
        self.confirmed = max(self.confirmed, self.offered)

    @property
    def in_flight(self) -> int:
        if all(self.is_acknowledged):
            return 0
        return len(self.is_acknowledged) - self.is_acknowledged.index(False)

    @invariant()
    def it_is_where_the_acknowledged_prefix_ends(self) -> None:
        assert self.watermark.confirmed == self.confirmed
        assert self.watermark.in_flight == self.in_flight
        assert self.watermark.is_idle == (self.in_flight == 0)

    @invariant()
    def it_is_below_everything_unacknowledged(self) -> None:
        for ticket, is_acknowledged in zip(
            self.tickets, self.is_acknowledged, strict=True
        ):
            if not is_acknowledged and ticket.end_lsn is not None:
                assert self.watermark.confirmed < ticket.end_lsn


TestWatermark = WatermarkModel.TestCase


def test_a_batch_inside_a_transaction_moves_nothing_until_its_end() -> None:
    watermark = Watermark()
    first = watermark.track(None)
    second = watermark.track(Lsn(50))

    watermark.resolve(first)
    assert watermark.confirmed == 0
    watermark.resolve(second)
    assert watermark.confirmed == 50


def test_an_offer_made_while_something_was_in_flight_counts_afterwards() -> None:
    watermark = Watermark()
    ticket = watermark.track(Lsn(50))

    watermark.offer(Lsn(70))
    assert watermark.confirmed == 0
    assert watermark.in_flight == 1
    watermark.resolve(ticket)

    assert watermark.confirmed == 70


def test_a_transaction_that_ends_before_one_already_tracked_is_refused() -> None:
    watermark = Watermark(Lsn(10))
    watermark.track(Lsn(50))
    watermark.track(None)

    with pytest.raises(ValueError, match="not above 0/32"):
        watermark.track(Lsn(50))
    with pytest.raises(ValueError, match="not above"):
        Watermark(Lsn(10)).track(Lsn(10))
