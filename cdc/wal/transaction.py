"""Transactions: Begin, rows, Commit, and no other order.

Logical decoding hands out committed transactions one after the other, so one open
transaction is all there is, and its commit position is in its first message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import DecodeError

if TYPE_CHECKING:
    from cdc.wal.changes import Begin, Commit, Relation


class Transactions:
    """Follows Begin, outbox rows and Commit; refuses any other order with DecodeError.

    A refused message changes nothing.

    Attributes:
        current: the transaction whose commit has not been read yet.

    """

    def __init__(self) -> None:
        self.current: Begin | None = None
        self._rows = 0

    def begin(self, change: Begin) -> None:
        """Open a transaction."""
        if self.current is not None:
            raise DecodeError(
                f"transaction {change.xid} begins inside transaction {self.current.xid}"
            )
        self.current = change
        self._rows = 0

    def row(self, relation: Relation) -> int:
        """Take note of an outbox row; return which of its transaction it is, from 0."""
        if self.current is None:
            raise DecodeError(
                f"insert into {relation.schema}.{relation.name}"
                " outside of a transaction"
            )
        ordinal = self._rows
        self._rows = ordinal + 1
        return ordinal

    def commit(self, change: Commit) -> int:
        """Close the open transaction; return how many outbox rows it had."""
        begun = self.current
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
        self.current = None
        return self._rows
