"""Events gathered into a batch, until it is handed to the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.outbox import EventBatch
from cdc.position import Anchor

if TYPE_CHECKING:
    from cdc.outbox import Event
    from cdc.wal.changes import Begin
    from slots.lsn import Lsn


class Gathering:
    """The batch that grows.

    Attributes:
        size_bytes: of its events.
        transactions: how many end in it.
        committed_at_us: commit time of its first event.
        anchor: the last transaction that ends in it, None when none does.

    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._whole = 0
        self.size_bytes = 0
        self.transactions = 0
        self.committed_at_us = 0
        self.anchor: Anchor | None = None

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: Event, transaction: Begin) -> None:
        """Put an event behind the others."""
        if not self._events:
            self.committed_at_us = transaction.committed_at_us
        self._events.append(event)
        self.size_bytes += event.size_bytes

    def end_transaction(self, transaction: Begin, end_lsn: Lsn) -> None:
        """Take note that the last event was the last of its transaction."""
        self.anchor = Anchor(
            end_lsn,
            transaction.xid,
            transaction.committed_at_us,
            self._events[-1].event_id,
        )
        self._whole = len(self._events)
        self.transactions += 1

    def keep_whole(self) -> None:
        """Drop the beginning of a transaction that does not end in here."""
        for event in self._events[self._whole :]:
            self.size_bytes -= event.size_bytes
        del self._events[self._whole :]

    def batch(self) -> EventBatch:
        """Give what there is as a batch; this object has had its time then."""
        return EventBatch(
            events=self._events,
            end_lsn=self.anchor and self.anchor.end_lsn,
            size_bytes=self.size_bytes,
        )
