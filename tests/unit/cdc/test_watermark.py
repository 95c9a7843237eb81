"""The watermark: contiguous, monotonic, never beyond what is acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cdc.watermark import Watermark
from slots.lsn import Lsn


class WatermarkModel(RuleBasedStateMachine):
    """Compares the watermark with a list that is searched from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.watermark = Watermark(Lsn(100))
        self.clock = 100
        self.batches: list[list[object]] = []
        self.offered = 100
        self.highest_seen = 100

    @rule(ends=st.booleans(), step=st.integers(1, 50))
    def track(self, ends: bool, step: int) -> None:  # noqa: FBT001 - drawn by name
        self.clock += step
        end = Lsn(self.clock) if ends else None
        self.batches.append([end, False, self.watermark.track(end)])

    @precondition(lambda self: any(not batch[1] for batch in self.batches))
    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        open_ones = [batch for batch in self.batches if not batch[1]]
        batch = data.draw(st.sampled_from(open_ones))
        batch[1] = True
        self.watermark.resolve(batch[2])  # type: ignore[arg-type] # a list of three

    @rule(step=st.integers(0, 50))
    def offer(self, step: int) -> None:
        self.clock += step
        self.offered = self.clock
        self.watermark.offer(Lsn(self.clock))

    def expected(self) -> int:
        position = 100
        for end, is_acknowledged, _ticket in self.batches:
            if not is_acknowledged:
                return position
            if isinstance(end, Lsn):
                position = end
        return position

    @invariant()
    def it_never_passes_what_is_not_acknowledged(self) -> None:
        first_open = next((b for b in self.batches if not b[1]), None)
        if first_open is None:
            assert self.watermark.confirmed == max(self.expected(), self.offered)
            assert self.watermark.is_idle
        else:
            assert self.watermark.confirmed >= self.expected()
            later = [b[0] for b in self.batches[self.batches.index(first_open) :]]
            ends = [end for end in later if isinstance(end, Lsn)]
            assert not ends or self.watermark.confirmed < ends[0]
            assert not self.watermark.is_idle

    @invariant()
    def it_never_goes_back(self) -> None:
        assert self.watermark.confirmed >= self.highest_seen
        self.highest_seen = self.watermark.confirmed


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
