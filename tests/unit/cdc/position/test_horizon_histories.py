"""A server's transactions, step by step: what the horizon promises holds at each."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cdc.position import (
    Sample,
    acknowledged,
    horizon_at,
    parse,
    read_back_from_ms,
    sampled,
)
from cdc.position.horizon import MAX_SAMPLES
from slots.lsn import Lsn
from tests.unit.cdc.position.positions import position

RECORD = 8
"""Bytes of a record in this server's WAL."""


@dataclass
class Transaction:
    """Its own id and those of its savepoints, each with the time it was given out."""

    begun: dict[int, int]
    rows: set[int] = field(default_factory=set)
    commit_lsn: int | None = None

    @property
    def xid(self) -> int:
        return min(self.begun)

    @property
    def end_lsn(self) -> int:
        assert self.commit_lsn is not None
        return self.commit_lsn + RECORD


class Server(RuleBasedStateMachine):
    """Ids are given out at the first write, positions by commits.

    A transaction leaves the snapshot some time after its commit record is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next_xid = (1 << 32) - 20
        self.lsn = 1000
        self.now_ms = 5_000
        self.running: list[Transaction] = []
        self.ended: list[Transaction] = []
        self.position = position(1000)

    def give_xid(self) -> int:
        self.next_xid += 1
        return self.next_xid - 1

    def draw_running(self, data: st.DataObject) -> Transaction:
        return data.draw(st.sampled_from(self.running))

    @rule(ms=st.integers(0, 50), size=st.integers(0, 100))
    def time_goes_by(self, ms: int, size: int) -> None:
        self.now_ms += ms
        self.lsn += size

    @rule()
    def begin(self) -> None:
        xid = self.give_xid()
        self.running.append(Transaction({xid: self.now_ms}, {xid}))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def insert_in_savepoint(self, data: st.DataObject) -> None:
        chosen = self.draw_running(data)
        if chosen.commit_lsn is None:
            xid = self.give_xid()
            chosen.begun[xid] = self.now_ms
            chosen.rows.add(xid)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def write_commit(self, data: st.DataObject) -> None:
        chosen = self.draw_running(data)
        if chosen.commit_lsn is None:
            chosen.commit_lsn = self.lsn
            self.lsn += RECORD
            self.ended.append(chosen)
            if data.draw(st.booleans()):
                self.running.remove(chosen)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Abort, unless the commit is written."""
        self.running.remove(self.draw_running(data))

    @rule(count=st.integers(1, MAX_SAMPLES))
    def sample(self, count: int) -> None:
        for _ in range(count):
            xmin = min((one.xid for one in self.running), default=self.next_xid)
            at = Sample(xmin, self.next_xid, Lsn(self.lsn), self.now_ms)
            self.position = sampled(self.position, at)
            self.lsn += 1
            self.now_ms += 1

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """In commit order; then as far as the server says that nothing is to come."""
        waiting = self.waiting()
        done = waiting[: data.draw(st.integers(0, len(waiting)))]
        at_least = max([self.position.end_lsn, *(one.end_lsn for one in done)])
        following = waiting[len(done) :]
        at_most = following[0].commit_lsn if following else self.lsn
        if at_most is not None and at_most >= at_least:
            self.position = acknowledged(
                self.position, Lsn(data.draw(st.integers(at_least, at_most)))
            )

    @rule()
    def restart(self) -> None:
        self.position = parse(self.position.document())

    def waiting(self) -> list[Transaction]:
        in_order = sorted(self.ended, key=lambda one: one.end_lsn)
        return [one for one in in_order if one.end_lsn > self.position.end_lsn]

    @invariant()
    def every_row_that_is_not_acknowledged_is_at_or_above_the_horizon(self) -> None:
        horizon = self.position.horizon
        if horizon is not None:
            for one in [*self.waiting(), *self.running]:
                if one.commit_lsn is None or one.end_lsn > self.position.end_lsn:
                    assert min(one.rows) >= horizon

    @invariant()
    def so_it_is_for_every_moment_that_samples_reach_back_to(self) -> None:
        for known in self.position.samples:
            horizon = horizon_at(self.position, known.lsn)
            assert horizon is not None
            for one in self.ended:
                if one.end_lsn > known.lsn:
                    assert min(one.rows) >= horizon

    @invariant()
    def nothing_at_or_above_the_horizon_began_before_the_read_back(self) -> None:
        horizon = self.position.horizon
        if horizon is not None:
            since_ms = read_back_from_ms(self.position, horizon)
            for one in [*self.ended, *self.running]:
                for xid, at_ms in one.begun.items():
                    assert xid < horizon or at_ms >= since_ms

    @invariant()
    def samples_are_few_and_in_order(self) -> None:
        places = [one.lsn for one in self.position.samples]
        assert len(places) <= MAX_SAMPLES
        assert places == sorted(set(places))


Server.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None
)
TestServer = Server.TestCase


def test_samples_are_fine_near_the_end_and_reach_back_to_the_first() -> None:
    subject = position()
    for number in range(1000):
        subject = sampled(subject, Sample(number, number + 5, Lsn(number), number))

    places = [one.lsn for one in subject.samples]

    assert places[0] == 0
    assert places[-MAX_SAMPLES // 3 :] == list(range(1000 - MAX_SAMPLES // 3, 1000))
    assert len(places) <= MAX_SAMPLES
