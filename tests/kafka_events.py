"""Events for a sink, without a database behind them."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from cdc.outbox import Event, EventBatch
from cdc.sinks.kafka_options import KafkaOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cdc.sinks.kafka import KafkaSink

_NOW = object()


def event(
    topic: str,
    key: bytes | None = b"key",
    value: bytes | None = b"{}",
    *,
    timestamp_ms: Any = _NOW,
    partition_key: Any = _NOW,
) -> Event:
    """Make an event; the partition goes by the key unless told otherwise."""
    event_id = str(uuid.uuid4())
    return Event(
        event_id=event_id,
        topic=topic,
        key=key,
        value=value,
        headers=[("id", event_id.encode())],
        timestamp_ms=now_ms() if timestamp_ms is _NOW else timestamp_ms,
        partition_key=key if partition_key is _NOW else partition_key,
        size_bytes=200 + len(key or b"") + len(value or b""),
    )


def events(topic: str, count: int, *, key: bytes = b"key") -> list[Event]:
    """Make events of one key whose values are their numbers."""
    return [event(topic, key, str(number).encode()) for number in range(count)]


def batch(*of: Event | Sequence[Event]) -> EventBatch:
    """Make a batch of events."""
    flat: list[Event] = []
    for one in of:
        if isinstance(one, Event):
            flat.append(one)
        else:
            flat.extend(one)
    return EventBatch(
        events=flat, end_lsn=None, size_bytes=sum(e.size_bytes for e in flat)
    )


def now_ms() -> int:
    """Return the time as Kafka counts it."""
    return time.time_ns() // 1_000_000


def options(bootstrap_servers: str, **changes: Any) -> KafkaOptions:
    """Describe a broker to the sink."""
    return KafkaOptions(bootstrap_servers=bootstrap_servers, **changes)


def values(records: Sequence[Any]) -> list[bytes]:
    """Return the values of records."""
    return [record.value for record in records]


@contextlib.asynccontextmanager
async def entered(sink: KafkaSink) -> AsyncIterator[KafkaSink]:
    """Enter a sink, and fail when leaving it takes longer than it may."""
    await sink.__aenter__()
    try:
        yield sink
    finally:
        async with asyncio.timeout(5):
            await sink.__aexit__(None, None, None)
