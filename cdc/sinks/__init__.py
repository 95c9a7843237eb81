"""Where events go, and what it means that they have arrived.

A sink is entered once a session and left at its end; in between it takes batches.
``publish()`` returning means *accepted*, in this order; the delivery it returns means
*durable*. A sink never drops an event, never reorders events of one topic and key, and
never waits without a limit (the one exception has a name: a topic that does not exist
yet is waited for, with back-off, and told to whoever watches).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

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
