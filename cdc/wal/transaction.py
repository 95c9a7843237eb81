"""Group changes by transaction, and let the rows flow before the commit is read.

Logical decoding hands out committed transactions one after the other, so one open
transaction is all there is, and its commit position is in its first message. The only
thing a row has to wait for is the knowledge whether another one follows: one row is
held back, whatever the size of the transaction.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cdc.errors import DecodeError

if TYPE_CHECKING:
    from cdc.wal.changes import Begin, Commit, Insert, Relation, Value
    from slots.lsn import Lsn


class Row(NamedTuple):
    """One outbox row of a committed transaction.

    ``ordinal`` counts the transaction's rows from 0.
    """

    transaction: Begin
    ordinal: int
    is_last: bool
    relation: Relation
    values: tuple[Value, ...]


_row_of: Final = partial(tuple.__new__, Row)
"""Makes a Row of its values in order; there is one for every row."""


class TransactionEnd(NamedTuple):
    """A transaction is complete.

    Attributes:
        last_row: its last row, if it had any.
        end_lsn: what may be confirmed once its rows are delivered.
        row_count: how many rows it had.

    """

    last_row: Row | None
    end_lsn: Lsn
    row_count: int


class TransactionAssembler:
    """Follows Begin, inserts and Commit; refuses any other order with DecodeError."""

    def __init__(self) -> None:
        self._open: Begin | None = None
        self._held: Insert | None = None
        self._count = 0

    @property
    def open_transaction(self) -> Begin | None:
        """The transaction whose commit has not been read yet."""
        return self._open

    def begin(self, change: Begin) -> None:
        """Open a transaction."""
        if self._open is not None:
            raise DecodeError(
                f"transaction {change.xid} begins inside transaction {self._open.xid}"
            )
        self._open = change
        self._count = 0

    def insert(self, change: Insert) -> Row | None:
        """Take an outbox row; return the one before it, now known not to be last."""
        if self._open is None:
            raise DecodeError(
                f"insert into {change.relation.schema}.{change.relation.name}"
                " outside of a transaction"
            )
        held, self._held = self._held, change
        self._count += 1
        if held is None:
            return None
        return _row_of((self._open, self._count - 2, False, *held))

    def commit(self, change: Commit) -> TransactionEnd:
        """Close the transaction; raise DecodeError when it is not the open one."""
        begun = self._open
        if begun is None:
            raise DecodeError(f"commit at {change.commit_lsn} without a transaction")
        if begun.commit_lsn != change.commit_lsn:
            raise DecodeError(
                f"transaction {begun.xid} was to commit at {begun.commit_lsn},"
                f" the commit read is at {change.commit_lsn}"
            )
        if change.end_lsn <= change.commit_lsn:
            raise DecodeError(
                f"transaction {begun.xid} ends at {change.end_lsn},"
                f" not behind its commit at {change.commit_lsn}"
            )
        held, self._held = self._held, None
        self._open = None
        last_row = None
        if held is not None:
            last_row = _row_of((begun, self._count - 1, True, *held))
        return TransactionEnd(last_row, change.end_lsn, self._count)
