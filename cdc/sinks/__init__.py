"""Where events go, and what it means that they have arrived.

A sink is entered once a session and left at its end; in between it takes batches.
``publish()`` returning means *accepted*, in this order; the delivery it returns means
*durable*. A sink never drops an event, never reorders events of one topic and key, and
never waits without a limit (the one exception has a name: a topic that does not exist
yet is waited for, with back-off, and told to whoever watches).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType

    from cdc.finding import Finding
    from cdc.outbox import EventBatch

Delivery: TypeAlias = Awaitable[None]
"""Await it once: returns when every event of the batch is durable, else raises.

Raises:
    RecordRefused: the sink will never take one of the records (names the event id).
    SinkUncertain: failed, or the outcome is unknown; the events must be sent again.
    SinkDenied: credentials or rights are refused.
    SinkUnavailable: nobody answers.

"""


class Sink(Protocol):
    """A place that keeps events."""

    async def __aenter__(self) -> Self:
        """Connect; raise SinkUnavailable or SinkDenied. May be entered again later."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect in bounded time, giving up whatever is not durable yet."""
        ...

    async def publish(self, batch: EventBatch) -> Delivery:
        """Accept a batch; may wait while the sink is busy.

        Raises what a Delivery raises.
        """
        ...

    @property
    def troubles(self) -> Sequence[str]:
        """One line for each thing it waits for (a missing topic); often empty."""
        ...

    async def check(self, constant_topics: Sequence[str]) -> list[Finding]:
        """Test what the sink needs, on connections of its own, each tried once.

        Args:
            constant_topics: topics known before any row is read (a template without
                columns); they have to exist unless the sink may make them.

        """
        ...


class Kept(NamedTuple):
    """What a store keeps for one relay.

    ``term`` counts the starts of the relay: a store believes the highest, so that one
    that wakes up late harms nobody. ``document`` is the position, JSON, at most some
    kilobytes; a store does not look into it.
    """

    name: str
    term: int
    document: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a store wants to be written to.

    Attributes:
        events_s: at least this long between two writes while events flow.
        idle_s: at least this long between two writes while none do.
        idle_bytes: and not before so much foreign WAL has passed.

    """

    events_s: float
    idle_s: float
    idle_bytes: int


class PositionStore(Protocol):
    """Keeps positions beside the events; entered and left like a sink.

    Every call ends in bounded time and raises SinkUnavailable, SinkUncertain or
    SinkDenied (a table in the source database: what ``slots.connect`` raises).
    """

    pace: Pace

    async def __aenter__(self) -> Self:
        """Connect. May be entered again later."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect in bounded time."""
        ...

    async def read(self, name: str) -> Kept | None:
        """Return what the highest term has written last, None if nobody has."""
        ...

    async def write(self, kept: Kept) -> None:
        """Keep it; durable when this returns. Clears older terms of that name."""
        ...

    async def check(self) -> list[Finding]:
        """Test whether positions could be kept and would stay."""
        ...

    async def make(self) -> list[str]:
        """Make what the store lives in where it is missing; say what was made."""
        ...


class ReadBack(Protocol):
    """Tells which events a sink holds already; entered and left like a sink."""

    async def __aenter__(self) -> Self:
        """Connect; raise SinkUnavailable or SinkDenied."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect in bounded time."""
        ...

    def ids(self, topic: str, *, since_ms: int) -> AsyncIterator[list[str]]:
        """Yield the ids of a topic's records up to its present end, in pieces.

        Args:
            topic: one that does not exist yields nothing.
            since_ms: milliseconds since 1970; every record with this timestamp or a
                later one is among them, 0 is all of them. Only what is committed.

        """
        ...
