"""No row that may be unpublished lies below the horizon, whatever history it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cdc.position import (
    Overlap,
    Sample,
    acknowledged,
    horizon_at,
    read_back_from_ms,
    sampled,
)
from cdc.position.horizon import MAX_SAMPLES
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import stored_position

if TYPE_CHECKING:
    from cdc.position import Position


@dataclass
class History:
    """A server's transactions: ids when they begin, LSNs when they end."""

    next_xid: int = 1000
    lsn: int = 100
    clock_ms: int = 1
    open: list[list[int]] = field(default_factory=list)
    ended: list[tuple[int, list[int]]] = field(default_factory=list)
    begun_at: dict[int, int] = field(default_factory=dict)

    def begin(self) -> None:
        self.open.append([self._xid()])

    def savepoint(self, which: int) -> None:
        if self.open:
            self.open[which % len(self.open)].append(self._xid())

    def commit(self, which: int) -> None:
        if self.open:
            self.lsn += 10
            self.ended.append((self.lsn, self.open.pop(which % len(self.open))))

    def sample(self) -> Sample:
        tops = [xids[0] for xids in self.open]
        xmin = min(tops, default=self.next_xid)
        self.lsn += 1  # whatever else writes
        return Sample(xmin, self.next_xid, Lsn(self.lsn), self.clock_ms)

    def _xid(self) -> int:
        self.clock_ms += 1
        self.begun_at[self.next_xid] = self.clock_ms
        self.next_xid += 1
        return self.next_xid - 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "savepoint", "commit", "sample", "acknowledge"]),
        st.integers(0, 20),
    ),
    max_size=120,
)


@given(STEPS)
def test_rows_of_transactions_that_are_not_acknowledged_are_candidates(
    steps: list[tuple[str, int]],
) -> None:
    history, position = History(), stored_position(0)
    for step, number in steps:
        match step:
            case "begin":
                history.begin()
            case "savepoint":
                history.savepoint(number)
            case "commit":
                history.commit(number)
            case "sample":
                position = sampled(position, history.sample())
            case _:
                position = acknowledged(
                    position, Lsn(max(position.end_lsn, history.lsn - number * 7))
                )
        check(history, position)


def check(history: History, position: Position) -> None:
    assert len(position.samples) <= MAX_SAMPLES
    if position.horizon is None:
        return
    waiting = [
        xid for lsn, xids in history.ended if lsn > position.end_lsn for xid in xids
    ]
    waiting += [xid for xids in history.open for xid in xids]
    assert all(xid >= position.horizon for xid in waiting)
    since_ms = read_back_from_ms(position, position.horizon)
    begun = [at for xid, at in history.begun_at.items() if xid >= position.horizon]
    assert all(at >= since_ms for at in begun)


def test_the_horizon_never_goes_back() -> None:
    position = sampled(stored_position(0), Sample(50, 60, Lsn(10), 1))
    position = acknowledged(position, Lsn(10))
    assert position.horizon == 50
    assert acknowledged(position, Lsn(11)).horizon == 50


def test_a_sample_of_a_moment_before_is_left_out() -> None:
    position = sampled(stored_position(0), Sample(50, 60, Lsn(10), 1))
    assert sampled(position, Sample(40, 60, Lsn(10), 2)) == position


def test_the_horizon_of_an_lsn_is_that_of_the_sample_before_it() -> None:
    position = stored_position(0)
    for number in (10, 20, 30):
        position = sampled(position, Sample(number, number + 5, Lsn(number), number))
    position = acknowledged(position, Lsn(35))
    assert horizon_at(position, Lsn(25)) == 20
    assert horizon_at(position, Lsn(35)) == 30
    assert horizon_at(position, Lsn(9)) is None
    assert horizon_at(stored_position(0, horizon=7), Lsn(1)) == 7


def test_the_read_back_begins_at_the_newest_sample_that_is_old_enough() -> None:
    position = stored_position(
        0, samples=(Sample(1, 5, Lsn(1), 100), Sample(5, 9, Lsn(2), 200))
    )
    assert read_back_from_ms(position, 5) == 100
    assert read_back_from_ms(position, 9) == 200
    assert read_back_from_ms(position, 4) == 0


def test_an_overlap_is_forgotten_once_it_has_been_passed() -> None:
    overlap = Overlap("1:1:", Lsn(50))
    position = stored_position(10, overlap=overlap)
    assert acknowledged(position, Lsn(49)).overlap == overlap
    assert acknowledged(position, Lsn(50)).overlap is None
