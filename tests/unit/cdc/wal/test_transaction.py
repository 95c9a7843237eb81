"""Transactions: rows in order, the last one marked, any other order refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wal.changes import Begin, Column, Commit, Insert, Relation
from cdc.wal.transaction import Row, TransactionAssembler
from slots.lsn import Lsn

OUTBOX = Relation(oid=1, schema="public", name="outbox", columns=(Column("id"),))


def begin(at: int, xid: int = 7) -> Begin:
    return Begin(xid=xid, commit_lsn=Lsn(at), committed_at_us=0)


def commit(at: int) -> Commit:
    return Commit(commit_lsn=Lsn(at), end_lsn=Lsn(at + 10))


def row(number: int) -> Insert:
    return Insert(OUTBOX, (b"%d" % number,))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_every_row_comes_once_in_order_and_only_the_last_is_marked(
    sizes: list[int],
) -> None:
    assembler = TransactionAssembler()
    number = 0
    for position, size in enumerate(sizes):
        at = 1000 + 100 * position
        rows: list[Row] = []
        assembler.begin(begin(at, xid=position + 1))
        first = number
        for _ in range(size):
            given_out = assembler.insert(row(number))
            number += 1
            if given_out is not None:
                rows.append(given_out)
            # No more than one row is ever held back.
            assert len(rows) == number - first - 1
        end = assembler.commit(commit(at))
        if end.last_row is not None:
            rows.append(end.last_row)

        assert [r.values for r in rows] == [(b"%d" % n,) for n in range(first, number)]
        assert [r.ordinal for r in rows] == list(range(size))
        assert [r.is_last for r in rows] == [n == size - 1 for n in range(size)]
        assert {r.transaction.xid for r in rows} <= {position + 1}
        assert (end.row_count, end.end_lsn) == (size, at + 10)
        assert assembler.open_transaction is None


MESSAGES = st.sampled_from(["begin", "insert", "insert", "commit", "commit elsewhere"])


@given(st.lists(MESSAGES, max_size=30))
def test_any_order_of_messages_is_a_transaction_or_refused(kinds: list[str]) -> None:
    """And a refused message changes nothing: what comes after is judged as before."""
    assembler = TransactionAssembler()
    taken: list[int] = []
    given_out: list[Row | None] = []
    at = 0
    for number, kind in enumerate(kinds):
        match kind:
            case "begin" if not at:
                at = 100 + 100 * number
                assembler.begin(begin(at))
            case "insert" if at:
                taken.append(number)
                given_out.append(assembler.insert(row(number)))
            case "commit" if at:
                given_out.append(assembler.commit(commit(at)).last_row)
                at = 0
            case "begin":
                with pytest.raises(DecodeError):
                    assembler.begin(begin(100 + 100 * number))
            case "insert":
                with pytest.raises(DecodeError):
                    assembler.insert(row(number))
            case _:
                with pytest.raises(DecodeError):
                    assembler.commit(commit(at + 1))
    if at:
        given_out.append(assembler.commit(commit(at)).last_row)

    assert [r.values for r in given_out if r] == [(b"%d" % n,) for n in taken]


def test_the_open_transaction_is_known() -> None:
    assembler = TransactionAssembler()
    assembler.begin(begin(5))

    assert assembler.open_transaction == begin(5)


def test_a_transaction_inside_a_transaction_is_refused() -> None:
    assembler = TransactionAssembler()
    assembler.begin(begin(5))

    with pytest.raises(DecodeError, match="begins inside"):
        assembler.begin(begin(6))


def test_a_row_outside_of_a_transaction_is_refused() -> None:
    with pytest.raises(DecodeError, match="outside of a transaction"):
        TransactionAssembler().insert(row(1))


def test_a_commit_without_a_transaction_is_refused() -> None:
    with pytest.raises(DecodeError, match="without a transaction"):
        TransactionAssembler().commit(commit(5))


def test_a_commit_elsewhere_than_announced_is_refused() -> None:
    assembler = TransactionAssembler()
    assembler.begin(begin(5))

    with pytest.raises(DecodeError, match="was to commit at 0/5"):
        assembler.commit(commit(6))


def test_a_transaction_that_ends_before_its_commit_is_refused() -> None:
    assembler = TransactionAssembler()
    assembler.begin(begin(5))

    with pytest.raises(DecodeError, match="not behind its commit"):
        assembler.commit(Commit(commit_lsn=Lsn(5), end_lsn=Lsn(5)))
