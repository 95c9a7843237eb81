"""Events of table rows to the sink: the delivery path of the stream, without positions.

Batches are accepted in order, awaited in order, and weigh no more in flight than the
window allows.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.outbox import EventBatch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from cdc.known_ids import KnownIds
    from cdc.outbox import Event
    from cdc.sinks import Delivery, Sink


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a republishing is.

    Attributes:
        total: rows that have to be looked at; 0 while unknown.
        rows: looked at so far.
        present: of these, what the sink had already.
        published: acknowledged by the sink; what else was looked at is under way.
        size_bytes: of what was published.
        began_at: by a monotonic clock, in seconds.

    """

    total: int = 0
    rows: int = 0
    present: int = 0
    published: int = 0
    size_bytes: int = 0
    began_at: float = 0.0

    def rate(self) -> float:
        """Return rows looked at in a second, since the beginning."""
        return self.rows / max(time.monotonic() - self.began_at, 1e-9)


class Republisher:
    """Publishes events that carry no position.

    Args:
        sink: entered; None only counts.
        known: tells what is there already.
        window_bytes: events in flight weigh at most this much, plus one piece.
        told: called with the progress after each piece.

    """

    def __init__(
        self,
        sink: Sink | None,
        known: KnownIds,
        *,
        window_bytes: int,
        told: Callable[[Progress], None],
    ) -> None:
        self._sink = sink
        self._known = known
        self._window_bytes = window_bytes
        self._told = told
        self._in_flight: deque[tuple[Delivery, int, int]] = deque()
        self._in_flight_bytes = 0
        self.progress = Progress(began_at=time.monotonic())

    async def publish(self, pieces: AsyncGenerator[list[Event], None]) -> Progress:
        """Publish what is new among the events; return when all is acknowledged.

        Raises what a delivery raises. The pieces are closed in every case.
        """
        async with aclosing(pieces):
            async for piece in pieces:
                events = await self._known.new(piece)
                if events:
                    await self._send(events)
                self.progress.rows += len(piece)
                self.progress.present += len(piece) - len(events)
                self._told(self.progress)
        while self._in_flight:
            await self._settle()
        self._told(self.progress)
        return self.progress

    async def _send(self, events: list[Event]) -> None:
        size_bytes = sum(event.size_bytes for event in events)
        if self._sink is None:
            self._count(len(events), size_bytes)
            return
        while self._in_flight and self._in_flight_bytes >= self._window_bytes:
            await self._settle()
        batch = EventBatch(events=events, end_lsn=None, size_bytes=size_bytes)
        delivery = await self._sink.publish(batch)
        self._in_flight.append((delivery, len(events), size_bytes))
        self._in_flight_bytes += size_bytes

    async def _settle(self) -> None:
        delivery, count, size_bytes = self._in_flight.popleft()
        await delivery
        self._in_flight_bytes -= size_bytes
        self._count(count, size_bytes)

    def _count(self, count: int, size_bytes: int) -> None:
        self.progress.published += count
        self.progress.size_bytes += size_bytes
