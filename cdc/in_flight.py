"""Batches that the sink has and nobody has acknowledged, in order, within a window."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.gathering import Gathering
    from cdc.metrics import RelayMetrics
    from cdc.outbox import EventBatch
    from cdc.position import Anchor
    from cdc.sinks import Delivery, Sink
    from cdc.watermark import Ticket

FEW: Final = 2
"""So many batches in flight keep a sink busy; with fewer, nothing waits."""

LINGER_S: Final = 0.005
MOST_S: Final = 0.25
"""A busy sink is given the next batch after so long for each that is in flight, and
after so long at most. A batch costs the same whatever is in it, and a broker that takes
one of each partition at a time never catches up with many small ones. Not until it is
less busy: what waits for a missing topic is in flight, too."""

_US: Final = 1_000_000


class _Sent(NamedTuple):
    """A batch in flight; ``events`` is how many it has."""

    ticket: Ticket
    anchor: Anchor | None
    delivery: Delivery
    events: int
    transactions: int
    size_bytes: int


class InFlight:
    """Hands batches to a sink, and awaits their deliveries in order.

    Args:
        sink: entered.
        metrics: what is counted.
        window_bytes: what is in flight weighs at most this much, plus one batch.
        acknowledged: called for each batch, in order, with its ticket and the last
            transaction that ends in it.

    Attributes:
        room: set when there may be room again.

    """

    def __init__(
        self,
        sink: Sink,
        metrics: RelayMetrics,
        *,
        window_bytes: int,
        acknowledged: Callable[[Ticket, Anchor | None], None],
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._acknowledged = acknowledged
        self._sent: deque[_Sent] = deque()
        self._size_bytes = 0
        self._work = asyncio.Event()
        self._is_closed = False
        self.room = asyncio.Event()

    @property
    def unacknowledged(self) -> int:
        """Events given to the sink of which nothing is known yet."""
        return sum(sent.events for sent in self._sent)

    @property
    def is_full(self) -> bool:
        """Whether the window has no room."""
        return self._size_bytes >= self._window_bytes

    @property
    def linger_s(self) -> float:
        """How long the next batch may grow before it is sent; 0 for not at all."""
        count = len(self._sent)
        return 0.0 if count < FEW else min(count * LINGER_S, MOST_S)

    async def send(
        self, gathered: Gathering, batch: EventBatch, ticket: Ticket
    ) -> None:
        """Hand a batch to the sink; its ticket counts from before that on."""
        count = len(batch.events)
        self._size_bytes += batch.size_bytes
        self._metrics.sent(
            count=count,
            size_bytes=batch.size_bytes,
            committed_at_s=gathered.committed_at_us / _US,
        )
        delivery = await self._sink.publish(batch)
        self._sent.append(
            _Sent(
                ticket,
                gathered.anchor,
                delivery,
                count,
                gathered.transactions,
                batch.size_bytes,
            )
        )
        self._work.set()

    def close(self) -> None:
        """Nothing more is sent: :meth:`settle` returns when all is acknowledged."""
        self._is_closed = True
        self._work.set()

    async def settle(self) -> None:
        """Await deliveries in order; raise what the first that fails raises."""
        while True:
            while self._sent:
                await self._sent[0].delivery
                self._settled(self._sent.popleft())
            if self._is_closed:
                return
            self._work.clear()
            await self._work.wait()

    def _settled(self, sent: _Sent) -> None:
        self._size_bytes -= sent.size_bytes
        self.room.set()
        self._metrics.acknowledged(
            count=sent.events,
            size_bytes=sent.size_bytes,
            transactions=sent.transactions,
            now_s=time.time(),
        )
        self._acknowledged(sent.ticket, sent.anchor)
