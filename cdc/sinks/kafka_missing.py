"""Events whose topic does not exist: kept in order until it does, and told about."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.errors import CdcError
    from cdc.outbox import Event
    from cdc.sinks.kafka_batches import KafkaDelivery

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Events of one batch for one missing topic.

    Attributes:
        released: resolves when the events have become shipments of the delivery.

    """

    events: list[Event]
    delivery: KafkaDelivery
    released: asyncio.Future[None]


class MissingTopics:
    """What waits for topics; bounded by the relay's window, as everything in flight.

    Args:
        servers: where the topics are missing, for messages.

    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._queues: dict[str, deque[Held]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def topics(self) -> list[str]:
        """Names of the missing topics, in the order they were missed."""
        return list(self._queues)

    def hold(self, topic: str, events: list[Event], delivery: KafkaDelivery) -> None:
        """Keep events behind those that wait for the same topic already."""
        held = Held(
            events=events,
            delivery=delivery,
            released=asyncio.get_running_loop().create_future(),
        )
        delivery.held.append(held.released)
        self._queues.setdefault(topic, deque()).append(held)

    def first(self, topic: str) -> Held | None:
        """Return what has to be sent next; forget the topic when nothing is left.

        Deciding and forgetting are one step: no event can come in between and overtake.
        """
        queue = self._queues.get(topic)
        if queue:
            return queue[0]
        self._queues.pop(topic, None)
        return None

    def release(self, topic: str, held: Held) -> None:
        """Take the first off: it has become shipments."""
        if not held.released.done():
            held.released.set_result(None)
            self._queues[topic].popleft()

    def fail(self, error: CdcError) -> None:
        """Let go of everything; it comes again in another session."""
        for queue in self._queues.values():
            for held in queue:
                fail(held.released, error)
        self._queues.clear()

    def lines(self, reasons: dict[str, str]) -> list[str]:
        """Say what is missing and how much waits for it.

        Args:
            reasons: by topic, why it cannot be had, where there is more to say than
                that it does not exist.

        """
        missing = f"does not exist on Kafka at {self._servers}: create it"
        return [
            f"topic '{topic}' {reasons.get(topic, missing)},"
            f" {_count(queue)} events wait"
            for topic, queue in self._queues.items()
        ]


def fail(future: asyncio.Future[None], error: CdcError) -> None:
    """Fail a future that perhaps nobody awaits any more, without noise about that."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def pauses_s() -> Iterator[float]:
    """Yield how long to wait between two looks for a topic."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _count(queue: deque[Held]) -> int:
    return sum(len(held.events) for held in queue)
