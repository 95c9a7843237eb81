"""Fakes that keep the promises, for our tests and for yours.

``MemorySink`` is a sink in every respect but that it forgets at exit of the process.
``FaultScript`` tells it when to fail, and how. ``MemoryPositions`` keeps positions
likewise. ``ScriptedStream`` plays frames to a
relay and records what is confirmed, refusing what a server would take to its harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.finding import ok
from cdc.sinks import Kept, Pace
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from cdc.errors import CdcError
    from cdc.finding import Finding
    from cdc.outbox import Event, EventBatch
    from cdc.sinks import Delivery
    from cdc.wal.frames import Frame


@dataclass(slots=True, kw_only=True)
class FaultScript:
    """What goes wrong at which batch, counted from 0 over the life of the sink.

    Attributes:
        refuse: ``publish()`` raises this.
        fail: the delivery raises this, and the events are not kept.
        lose_answer: the delivery raises this, and the events *are* kept.
        hold: the delivery resolves only after :meth:`MemorySink.release`.

    """

    refuse: dict[int, CdcError] = field(default_factory=dict)
    fail: dict[int, CdcError] = field(default_factory=dict)
    lose_answer: dict[int, CdcError] = field(default_factory=dict)
    hold: set[int] = field(default_factory=set)


class MemorySink:
    """Keeps events in a list.

    Attributes:
        events: what is durable, in order, repeats included.
        entered: how often it was entered.

    """

    def __init__(self, faults: FaultScript | None = None) -> None:
        self._faults = faults or FaultScript()
        self._count = 0
        self._held: deque[tuple[asyncio.Future[None], list[Event]]] = deque()
        self._grown = asyncio.Event()
        self.events: list[Event] = []
        self.entered = 0

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._held:
            future, _events = self._held.popleft()
            future.cancel()

    async def publish(self, batch: EventBatch) -> Delivery:
        """Keep a batch, or do what the script says of it."""
        number, self._count = self._count, self._count + 1
        if number in self._faults.refuse:
            raise self._faults.refuse[number]
        delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if number in self._faults.fail:
            delivery.set_exception(self._faults.fail[number])
        elif number in self._faults.lose_answer:
            self._keep(batch.events)
            delivery.set_exception(self._faults.lose_answer[number])
        elif number in self._faults.hold or self._held:
            # What comes behind a held batch waits as well: order is kept.
            self._held.append((delivery, batch.events))
        else:
            self._keep(batch.events)
            delivery.set_result(None)
        return delivery

    def release(self) -> None:
        """Let every held batch become durable, in order."""
        while self._held:
            future, events = self._held.popleft()
            self._keep(events)
            if not future.done():
                future.set_result(None)

    async def wait_for(self, count: int, *, limit_s: float = 10.0) -> list[Event]:
        """Wait until so many events are durable; raise TimeoutError after the limit."""
        async with asyncio.timeout(limit_s):
            while len(self.events) < count:
                self._grown.clear()
                await self._grown.wait()
        return self.events

    async def ids(self, topic: str, *, since_ms: int) -> AsyncIterator[list[str]]:
        """Yield the ids of a topic's events: the sink is its own read-back."""
        yield [
            event.event_id
            for event in self.events
            if event.topic == topic and event.timestamp_ms >= since_ms
        ]

    @property
    def troubles(self) -> Sequence[str]:
        """Nothing is ever waited for."""
        return ()

    async def check(self, constant_topics: Sequence[str]) -> list[Finding]:
        """Memory is always there."""
        return [ok("sink.memory", f"{len(constant_topics)} constant topics")]

    def _keep(self, events: Iterable[Event]) -> None:
        self.events.extend(events)
        self._grown.set()


class MemoryPositions:
    """Keeps positions in a dictionary.

    Args:
        pace: how often it wants to be written to; as often as there is something.

    Attributes:
        kept: what is durable, by name.
        written: every write, in order.
        failing: raised by the next writes until it is None again.

    """

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace = pace or Pace(events_s=0.0, idle_s=0.0, idle_bytes=0)
        self.kept: dict[str, Kept] = {}
        self.written: list[Kept] = []
        self.failing: CdcError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    async def read(self, name: str) -> Kept | None:
        """Return what the highest term has written last."""
        return self.kept.get(name)

    async def write(self, kept: Kept) -> None:
        """Keep it, unless a later term has written already."""
        if self.failing is not None:
            raise self.failing
        self.written.append(kept)
        known = self.kept.get(kept.name)
        if known is None or known.term <= kept.term:
            self.kept[kept.name] = kept

    async def check(self) -> list[Finding]:
        """Nothing can be wrong with it."""
        return [ok("memory.positions", "kept until the process ends")]

    async def make(self) -> list[str]:
        """Nothing has to be made."""
        return []


class ScriptedStream:
    """Plays frames to a relay as a started ``ReplicationStream`` would.

    Attributes:
        confirmed: the highest position the relay has confirmed.
        confirmations: every position in the order it was confirmed.

    """

    def __init__(self, start: Lsn = ZERO) -> None:
        self._frames: list[Frame] = []
        self._arrived = asyncio.Event()
        self._received = start
        self.confirmed = start
        self.confirmations: list[Lsn] = []
        self.failure: CdcError | None = None
        self.ended = asyncio.Event()
        self.is_finished = False

    def play(self, *frames: Frame, received: Lsn) -> None:
        """Let frames arrive; ``received`` is the highest position they speak of."""
        self._frames.extend(frames)
        self._received = max(self._received, received)
        self._arrived.set()

    def break_off(self, failure: CdcError) -> None:
        """End the stream once what has arrived is taken."""
        self.failure = failure
        self.ended.set()
        self._arrived.set()

    async def read(self) -> list[Frame]:
        """Wait for frames and take all; raise the failure once there are no more."""
        await self._arrived.wait()
        if not self._frames and self.failure is not None:
            raise self.failure
        taken, self._frames = self._frames, []
        if self.failure is None:
            self._arrived.clear()
        return taken

    def interrupt(self) -> None:
        """Make a waiting read return."""
        self._arrived.set()

    def received(self, position: Lsn) -> None:
        """Take note of a position read from a commit."""
        self._received = max(self._received, position)

    def confirm(self, position: Lsn) -> None:
        """Record a position; raise ValueError for one that a relay must not confirm."""
        if position > self._received:
            raise ValueError(
                f"{position} is beyond {self._received}, the last received"
            )
        if position < self.confirmed:
            raise ValueError(f"{position} is before {self.confirmed}")
        self.confirmed = position
        self.confirmations.append(position)

    async def finish(self, *, limit_s: float) -> None:
        """End in order."""
        del limit_s
        self.is_finished = True
