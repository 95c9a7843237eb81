"""Events become record batches, and their outcomes one delivery."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cdc.errors import RecordRefused

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from cdc.errors import CdcError
    from cdc.outbox import Event


@dataclass(slots=True, kw_only=True)
class Records:
    """A record batch on its way.

    Attributes:
        first_id: id of its first event, for messages.
        count: how many events it holds.
        largest_bytes: size of its largest record.
        timestamps_ms: lowest and highest timestamp.
        answer: resolves with the broker's answer.
        deadline: steady clock; after it the outcome counts as unknown.

    """

    topic: str
    partition: int
    first_id: str
    count: int
    largest_bytes: int
    timestamps_ms: tuple[int, int]
    answer: asyncio.Future[Any]
    deadline: float


class KafkaDelivery:
    """Resolves when every batch it consists of is acknowledged.

    Args:
        judge: turns what ended a batch into our error, and breaks the sink.

    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.sent: list[Records] = []
        self.held: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        return self._outcome().__await__()

    async def _outcome(self) -> None:
        # What is held becomes sent, in time; it has no deadline while it is held.
        for waiting in self.held:
            await waiting
        for records in self.sent:
            left_s = max(0.0, records.deadline - time.monotonic())
            try:
                async with asyncio.timeout(left_s):
                    await asyncio.shield(records.answer)
            except Exception as exc:
                raise self._judge.verdict(records, exc) from exc

    def abandon(self) -> None:
        """Give up what has no outcome, without noise from the event loop."""
        for future in (*self.held, *(records.answer for records in self.sent)):
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()


class Judge(Protocol):
    """Gives names to outcomes."""

    def verdict(self, records: Records, exc: Exception) -> CdcError:
        """Return our error for what ended a batch."""
        ...


def refuse_oversize(event: Event, limit: int) -> None:
    """Raise RecordRefused when a record is beyond what we may send."""
    size = event.size_bytes
    if size > limit:
        raise RecordRefused(
            f"event {event.event_id} is too large for topic {event.topic}:"
            f" {size} bytes, the limit is {limit}",
            hint="raise CDC_KAFKA__MAX_REQUEST_BYTES here and max.message.bytes of the"
            " topic; nothing behind it is published until then",
        )


def spread(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Group events by topic, each group in order."""
    topics: dict[str, list[Event]] = {}
    for event in events:
        group = topics.get(event.topic)
        if group is None:
            topics[event.topic] = [event]
        else:
            group.append(event)
    return topics
