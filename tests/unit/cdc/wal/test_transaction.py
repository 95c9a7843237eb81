"""Transactions: rows between begin and commit, any other order refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wal.changes import Begin, Column, Commit, Relation
from cdc.wal.transaction import Transactions
from slots.lsn import Lsn

OUTBOX = Relation(oid=1, schema="public", name="outbox", columns=(Column("id"),))


def begin(at: int, xid: int = 7) -> Begin:
    return Begin(xid=xid, commit_lsn=Lsn(at), committed_at_us=0)


def commit(at: int) -> Commit:
    return Commit(commit_lsn=Lsn(at), end_lsn=Lsn(at + 10))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_rows_are_counted_from_0_in_each_transaction(sizes: list[int]) -> None:
    transactions = Transactions()
    for position, size in enumerate(sizes):
        at = 1000 + 100 * position
        transactions.begin(begin(at, xid=position + 1))

        assert transactions.current == begin(at, xid=position + 1)
        assert [transactions.row(OUTBOX) for _ in range(size)] == list(range(size))
        assert transactions.commit(commit(at)) == size
        assert transactions.current is None


MESSAGES = st.sampled_from(["begin", "row", "row", "commit", "commit elsewhere"])


@given(st.lists(MESSAGES, max_size=30))
def test_any_order_of_messages_is_a_transaction_or_refused(kinds: list[str]) -> None:
    """And a refused message changes nothing: what comes after is judged as before."""
    transactions = Transactions()
    rows = at = 0
    for number, kind in enumerate(kinds):
        match kind:
            case "begin" if not at:
                at, rows = 100 + 100 * number, 0
                transactions.begin(begin(at))
            case "row" if at:
                assert transactions.row(OUTBOX) == rows
                rows += 1
            case "commit" if at:
                assert transactions.commit(commit(at)) == rows
                at = 0
            case "begin":
                with pytest.raises(DecodeError):
                    transactions.begin(begin(100 + 100 * number))
            case "row":
                with pytest.raises(DecodeError):
                    transactions.row(OUTBOX)
            case _:
                with pytest.raises(DecodeError):
                    transactions.commit(commit(at + 1))


def test_a_transaction_inside_a_transaction_is_refused() -> None:
    transactions = Transactions()
    transactions.begin(begin(5))

    with pytest.raises(DecodeError, match="begins inside"):
        transactions.begin(begin(6))


def test_a_row_outside_of_a_transaction_is_refused() -> None:
    with pytest.raises(DecodeError, match="outside of a transaction"):
        Transactions().row(OUTBOX)


def test_a_commit_without_a_transaction_is_refused() -> None:
    with pytest.raises(DecodeError, match="without a transaction"):
        Transactions().commit(commit(5))


def test_a_commit_elsewhere_than_announced_is_refused() -> None:
    transactions = Transactions()
    transactions.begin(begin(5))

    with pytest.raises(DecodeError, match="was to commit at 0/5"):
        transactions.commit(commit(6))


def test_a_transaction_that_ends_before_its_commit_is_refused() -> None:
    transactions = Transactions()
    transactions.begin(begin(5))

    with pytest.raises(DecodeError, match="not behind its commit"):
        transactions.commit(Commit(commit_lsn=Lsn(5), end_lsn=Lsn(5)))
