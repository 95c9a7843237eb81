"""Events gathered into a batch, until it is handed to the sink.

Rows flow before their transaction's commit is read, whatever its size. The only thing
an event has to wait for is the knowledge whether another one follows: the newest event
of an open transaction is held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.outbox import LAST, EventBatch
from cdc.position import Anchor

if TYPE_CHECKING:
    from cdc.outbox import Event
    from cdc.wal.changes import Begin
    from slots.lsn import Lsn


class Gathering:
    """The batch that grows; its length is the number of events that may be sent.

    Attributes:
        size_bytes: of its events, those held back included.
        transactions: how many end in it.
        committed_at_us: commit time of its first event.

    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._whole = 0
        self._open: Begin | None = None
        self._end: tuple[Begin, Lsn] | None = None
        self.size_bytes = 0
        self.transactions = 0
        self.committed_at_us = 0

    def __len__(self) -> int:
        return len(self._events) - (self._open is not None)

    def begin(self, transaction: Begin, first: Event) -> None:
        """Put the first event of a transaction behind the others."""
        if not self._events:
            self.committed_at_us = transaction.committed_at_us
        self._open = transaction
        self.add(first)

    def add(self, event: Event) -> None:
        """Put a further event of the open transaction behind the others."""
        self._events.append(event)
        self.size_bytes += event.size_bytes

    def end(self, end_lsn: Lsn) -> None:
        """Take note that the newest event is the last of its transaction."""
        assert self._open is not None  # noqa: S101 - begun with its first event
        self._events[-1].headers.append(LAST)
        self._end = (self._open, end_lsn)
        self._open = None
        self._whole = len(self._events)
        self.transactions += 1

    def keep_whole(self) -> None:
        """Drop the beginning of a transaction that does not end in here."""
        for event in self._events[self._whole :]:
            self.size_bytes -= event.size_bytes
        del self._events[self._whole :]
        self._open = None

    def split(self) -> Gathering:
        """Take out what is held back; return what goes on with it."""
        rest = Gathering()
        begun, self._open = self._open, None
        if begun is not None:
            held = self._events.pop()
            self.size_bytes -= held.size_bytes
            rest.begin(begun, held)
        return rest

    @property
    def anchor(self) -> Anchor | None:
        """The last transaction that ends in here, None when none does."""
        if self._end is None:
            return None
        begun, end_lsn = self._end
        last = self._events[self._whole - 1]
        return Anchor(end_lsn, begun.xid, begun.committed_at_us, last.event_id)

    def batch(self) -> EventBatch:
        """Give what may be sent as a batch, after :meth:`split`."""
        return EventBatch(
            events=self._events,
            end_lsn=self._end and self._end[1],
            size_bytes=self.size_bytes,
        )
