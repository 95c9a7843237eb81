"""What the stream may publish at its start: nothing before the anchor has come by.

The stream starts at the slot's own position, which a restarted server may remember as
an older one. Transactions up to the anchor are repeats and are dropped; the anchor
itself must be among them, or the history is another one (a volume that was put back
passes every other check). Between the anchor and the stored position our history had no
events: one there is a mismatch too, unless an operator has given it up. Behind a
resnapshot that overlaps with the stream, transactions that its snapshot shows are
dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.position.causes import Cause, mismatch

if TYPE_CHECKING:
    from cdc.position.record import Position
    from cdc.wal.changes import Begin, Commit
    from slots.lsn import Lsn


class Gate:
    """Judges transactions until the stored position has been passed.

    Args:
        position: as stored.
        start: the slot's own position, where the stream begins.
        end_lsn: how far our history goes: the stored position, or the point at which
            the server's timeline left it.

    Attributes:
        is_open: everything that comes now is new; the gate is not needed any more.

    """

    def __init__(self, position: Position, *, start: Lsn, end_lsn: Lsn) -> None:
        anchor = position.anchor
        self._position = position
        self._anchor = anchor if anchor is not None and start < anchor.end_lsn else None
        self._end_lsn = end_lsn
        self._overlap = position.overlap
        self._transaction: Begin | None = None
        self._has_rows = False
        self.is_open = False
        self._open(start)

    def begin(self, transaction: Begin) -> None:
        """Take note of a transaction; raise PositionMismatch for a missed anchor."""
        self._transaction = transaction
        self._has_rows = False
        self.passed(transaction.commit_lsn)

    def drops(self) -> bool:
        """Tell whether an outbox row of the open transaction is a repeat.

        Raises PositionMismatch for one where our history had none.
        """
        if self.is_open:
            return False
        self._has_rows = True
        if self._anchor is not None:
            return True
        begun, overlap = self._transaction, self._overlap
        if begun is None or begun.commit_lsn >= self._end_lsn:
            return (
                begun is not None and overlap is not None and overlap.shows(begun.xid)
            )
        if begun.commit_lsn < self._position.given_up:
            return True
        raise mismatch(
            self._position,
            Cause.ANCHOR,
            f"the slot sends events of transaction {begun.xid} at {begun.commit_lsn},"
            " below the stored position, that this relay has never had: the server's"
            " history is not the one it left",
        )

    def commit(self, commit: Commit) -> None:
        """Take note of the open transaction's end; it may be the anchor."""
        anchor, begun = self._anchor, self._transaction
        if anchor is None or begun is None or commit.end_lsn != anchor.end_lsn:
            return
        is_it = (begun.xid, begun.committed_at_us) == anchor[1:3]
        if is_it and self._has_rows:
            self._anchor = None
            self._open(commit.end_lsn)

    def passed(self, lsn: Lsn) -> None:
        """Take note that everything that commits below ``lsn`` has come by.

        Raises PositionMismatch when the anchor was to be among it and was not.
        """
        anchor = self._anchor
        if anchor is not None:
            if lsn < anchor.end_lsn:
                return
            raise mismatch(
                self._position,
                Cause.ANCHOR,
                f"transaction {anchor.xid}, the last one delivered, does not end at"
                f" {anchor.end_lsn} on this server: its history is not the one this"
                " relay left (a restored volume, or a backup)",
            )
        self._open(lsn)

    def _open(self, lsn: Lsn) -> None:
        """Open when nothing that commits from ``lsn`` on has to be judged."""
        overlap = self._overlap
        is_new = lsn >= self._end_lsn and (overlap is None or lsn >= overlap.until)
        if self._anchor is None and is_new:
            self.is_open = True
