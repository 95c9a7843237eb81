"""What a sink takes: an event, and a batch of them with the position it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from slots.lsn import Lsn


LAST: Final = ("cdc.last", b"1")
"""The header that the last event of a transaction has behind its others."""


class Event(NamedTuple):
    """One record to be.

    A named tuple and not a dataclass because one is made for every row, and a frozen
    dataclass costs three times as much.

    ``partition_key`` is what the partition is chosen by: the key, unless a column is
    mapped for it. ``size_bytes`` is not less than the record it becomes: what it counts
    for in flight and against the limits of a broker.
    """

    event_id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    partition_key: bytes | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Events in order, and the position they lead to.

    Attributes:
        events: in commit order, then statement order; never empty.
        end_lsn: end of the last transaction that ends inside this batch; None when none
            does, because one transaction goes on in the next batch.
        size_bytes: what the batch counts for against the window in flight.

    """

    events: list[Event]
    end_lsn: Lsn | None
    size_bytes: int
