"""What all events of one transaction carry, made once for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from cdc.wal.changes import Begin

_US_PER_MS = 1000


class Stamp(NamedTuple):
    """A transaction, as its events tell of it.

    ``position`` lacks the ordinal that makes a ``cdc.position`` of it.
    """

    transaction: Begin
    position: bytes
    xid: tuple[str, bytes]
    timestamp_ms: int

    @classmethod
    def of(cls, transaction: Begin, epoch: int) -> Self:
        """Make the stamp of a transaction that was read in this epoch."""
        return cls(
            transaction,
            b"%04X-%016X-" % (epoch, transaction.commit_lsn),
            ("cdc.xid", b"%d" % transaction.xid),
            transaction.committed_at_us // _US_PER_MS,
        )
