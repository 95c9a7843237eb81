"""The position up to which everything is acknowledged, and nothing beyond it.

Batches are tracked in commit order and resolved in any order; only the contiguous
acknowledged prefix counts. A batch may end inside a transaction: the transaction's end
then belongs to the batch that holds its last event.

The position never goes back, never passes what is in flight, and follows the server's
keepalives only while nothing is in flight (rules 1 and 5).
"""

from __future__ import annotations

from collections import deque

from slots.lsn import ZERO, Lsn


class Ticket:
    """One tracked batch; give it back to :meth:`Watermark.resolve`."""

    __slots__ = ("end_lsn", "is_resolved")

    def __init__(self, end_lsn: Lsn | None) -> None:
        self.end_lsn = end_lsn
        self.is_resolved = False


class Watermark:
    """Tells which position may be confirmed to the server.

    Args:
        start: the position the stream starts at, confirmed already.

    """

    def __init__(self, start: Lsn = ZERO) -> None:
        self._confirmed = start
        self._offered = start
        self._tickets: deque[Ticket] = deque()

    @property
    def confirmed(self) -> Lsn:
        """End of the last transaction of which everything before is acknowledged."""
        return self._confirmed

    @property
    def in_flight(self) -> int:
        """Batches that are tracked and not part of the acknowledged prefix."""
        return len(self._tickets)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._tickets

    def track(self, end_lsn: Lsn | None) -> Ticket:
        """Take note of a batch, in order.

        Args:
            end_lsn: end of the last transaction that ends inside the batch, or None if
                none does. Raises ValueError if it is not above every one before it.

        """
        if end_lsn is not None and end_lsn <= self._highest():
            raise ValueError(f"{end_lsn} is not above {self._highest()}")
        ticket = Ticket(end_lsn)
        self._tickets.append(ticket)
        return ticket

    def resolve(self, ticket: Ticket) -> None:
        """Take note that every event of the batch is acknowledged."""
        ticket.is_resolved = True
        while self._tickets and self._tickets[0].is_resolved:
            end_lsn = self._tickets.popleft().end_lsn
            if end_lsn is not None:
                self._confirmed = end_lsn
        self._take_offer()

    def offer(self, position: Lsn) -> None:
        """Take a position behind which there is nothing of ours still to come.

        That is a keepalive's ``wal_end`` outside of a transaction, or the end of a
        transaction without events. It counts once nothing is in flight.
        """
        self._offered = max(self._offered, position)
        self._take_offer()

    def _take_offer(self) -> None:
        if not self._tickets and self._offered > self._confirmed:
            self._confirmed = self._offered

    def _highest(self) -> Lsn:
        for ticket in reversed(self._tickets):
            if ticket.end_lsn is not None:
                return ticket.end_lsn
        return self._confirmed
