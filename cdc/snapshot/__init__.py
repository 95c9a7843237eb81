"""Rows of the outbox table as events: what a snapshot shows, in bounded memory.

The events are those that the stream had or would have had, marked with ``cdc.replay``
and without a position.
"""

from cdc.snapshot.bounds import Bounds, EventId, Since, parse_since
from cdc.snapshot.reading import Snapshot, open_snapshot

__all__ = [
    "Bounds",
    "EventId",
    "Since",
    "Snapshot",
    "open_snapshot",
    "parse_since",
]
