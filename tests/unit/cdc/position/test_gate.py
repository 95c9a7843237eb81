"""At the start of a stream: repeats are dropped, another history is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.position import Anchor, Gate, Overlap, PositionMismatch
from cdc.wal.changes import Begin, Commit
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import stored_position

if TYPE_CHECKING:
    from cdc.position import Position

SIZE = 10


class Transaction(NamedTuple):
    """Commits at ``at``, ends ten bytes behind."""

    at: int
    xid: int
    has_rows: bool


def passes(gate: Gate, transaction: Transaction) -> bool:
    """Let a transaction through the gate; tell whether its rows are published."""
    at, xid, has_rows = transaction
    gate.begin(Begin(xid=xid, commit_lsn=Lsn(at), committed_at_us=xid * 7))
    published = has_rows and not gate.drops()
    gate.commit(Commit(commit_lsn=Lsn(at), end_lsn=Lsn(at + SIZE)))
    return published


def position_at(end: int, anchor: Transaction | None) -> Position:
    return stored_position(
        end, anchor=anchor and Anchor(Lsn(anchor.at + SIZE), anchor.xid, anchor.xid * 7)
    )


HISTORY = st.lists(st.booleans(), min_size=1, max_size=20).map(
    lambda rows: [
        Transaction(100 + 20 * number, 700 + number, has_rows)
        for number, has_rows in enumerate(rows)
    ]
)


@given(HISTORY, st.data())
def test_on_our_history_exactly_what_is_behind_the_stored_position_passes(
    history: list[Transaction], data: st.DataObject
) -> None:
    """The slot may have forgotten any part of what is stored."""
    known = data.draw(st.integers(0, len(history)))
    first = data.draw(st.integers(0, known))
    end = 100 + 20 * known - data.draw(st.sampled_from([0, 10])) if known else 100
    start = 100 + 20 * first - data.draw(st.sampled_from([0, 10])) if first else 90
    anchor = next((one for one in reversed(history[:known]) if one.has_rows), None)
    gate = Gate(position_at(end, anchor), start=Lsn(start), end_lsn=Lsn(end))

    published = [one for one in history[first:] if passes(gate, one)]

    assert published == [one for one in history[known:] if one.has_rows]


@given(HISTORY, st.integers(1, 1000))
def test_on_another_history_nothing_passes_before_it_is_refused(
    history: list[Transaction], shift: int
) -> None:
    """The same positions, other transactions: a volume that was put back."""
    anchor = Transaction(history[-1].at, history[-1].xid + shift, has_rows=True)
    end = anchor.at + SIZE
    gate = Gate(position_at(end, anchor), start=Lsn(90), end_lsn=Lsn(end))

    assert not any(passes(gate, one) for one in history)
    with pytest.raises(PositionMismatch, match="does not end at"):
        passes(gate, Transaction(end + 5, 5000, has_rows=True))


def test_a_keepalive_beyond_a_missing_anchor_is_a_mismatch() -> None:
    anchor = Transaction(100, 7, has_rows=True)
    gate = Gate(position_at(200, anchor), start=Lsn(50), end_lsn=Lsn(200))
    gate.passed(Lsn(109))
    with pytest.raises(PositionMismatch):
        gate.passed(Lsn(110))


def test_the_anchor_without_its_rows_is_not_the_anchor() -> None:
    anchor = Transaction(100, 7, has_rows=True)
    gate = Gate(position_at(200, anchor), start=Lsn(50), end_lsn=Lsn(200))
    passes(gate, anchor._replace(has_rows=False))
    with pytest.raises(PositionMismatch):
        gate.passed(Lsn(150))


def test_events_between_anchor_and_stored_position_are_a_mismatch() -> None:
    anchor = Transaction(100, 7, has_rows=True)
    gate = Gate(position_at(200, anchor), start=Lsn(50), end_lsn=Lsn(200))
    passes(gate, anchor)
    passes(gate, Transaction(120, 8, has_rows=False))
    with pytest.raises(PositionMismatch, match="has never had"):
        passes(gate, Transaction(140, 9, has_rows=True))


def test_what_an_operator_has_given_up_is_dropped_and_no_mismatch() -> None:
    """A server that crashes may forget that the slot was moved past it."""
    anchor = Transaction(100, 7, has_rows=True)
    position = position_at(200, anchor)
    gate = Gate(replace(position, given_up=Lsn(150)), start=Lsn(50), end_lsn=Lsn(200))
    passes(gate, anchor)
    assert not passes(gate, Transaction(140, 8, has_rows=True))
    with pytest.raises(PositionMismatch, match="has never had"):
        passes(gate, Transaction(150, 9, has_rows=True))


def test_it_opens_when_the_stored_position_has_been_passed() -> None:
    gate = Gate(position_at(200, None), start=Lsn(50), end_lsn=Lsn(200))
    assert not gate.is_open
    gate.passed(Lsn(199))
    assert not gate.is_open
    gate.passed(Lsn(200))
    assert gate.is_open
    assert not gate.drops()


def test_it_is_open_from_the_start_when_there_is_nothing_to_meet() -> None:
    anchor = Transaction(100, 7, has_rows=True)
    assert Gate(position_at(200, anchor), start=Lsn(200), end_lsn=Lsn(200)).is_open


def test_a_row_before_any_transaction_is_the_assemblers_to_refuse() -> None:
    gate = Gate(position_at(200, None), start=Lsn(50), end_lsn=Lsn(200))
    assert not gate.drops()
    gate.commit(Commit(commit_lsn=Lsn(60), end_lsn=Lsn(70)))


def test_what_a_resnapshot_has_published_is_dropped_until_it_is_passed() -> None:
    position = stored_position(100, overlap=Overlap("700:703:701", Lsn(300)))
    gate = Gate(position, start=Lsn(100), end_lsn=Lsn(100))
    assert not gate.is_open
    assert not passes(gate, Transaction(120, 700, has_rows=True))
    assert passes(gate, Transaction(140, 701, has_rows=True)), "it was still running"
    assert not passes(gate, Transaction(160, 702, has_rows=True))
    assert passes(gate, Transaction(180, 703, has_rows=True)), "it began later"
    gate.passed(Lsn(300))
    assert gate.is_open
