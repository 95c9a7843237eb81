"""Appends a few records at once and waits for the answer; for what is no event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import SinkUncertain
from cdc.sinks.kafka_batches import Shipment, now_ms
from cdc.sinks.kafka_outcomes import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.sinks.kafka_options import KafkaOptions
    from cdc.sinks.kafka_producer import Producer

_BATCH_BYTES: Final = 256 * 1024
_PARTITION: Final = 0


async def append(
    producer: Producer,
    options: KafkaOptions,
    topic: str,
    records: Sequence[tuple[bytes, bytes | None]],
) -> int:
    """Append keys and values to a topic's first partition, all or none.

    After anything but success the producer sends nothing more and has to be replaced.

    Args:
        producer: started, with nothing else on its way.
        options: ``delivery_timeout_s`` is how long it may take.
        topic: that exists.
        records: those that do not fit into one batch are left out, never the first.

    Returns:
        how many were appended, from the first on; acknowledged by all replicas.

    Raises:
        SinkUncertain: refused, or the outcome is unknown.
        SinkDenied, SinkUnavailable: as they say.

    """
    time_ms = now_ms()
    builder = producer.new_batch(_BATCH_BYTES)
    for key, value in records:
        taken = builder.append(timestamp=time_ms, key=key, value=value, headers=[])
        if taken is None:
            break
    loop = asyncio.get_running_loop()
    shipment = Shipment(
        topic=topic,
        partition=_PARTITION,
        first_id=repr(records[0][0]),
        count=builder.record_count(),
        size_bytes=builder.size(),
        limit_bytes=0,
        times_ms=(time_ms, time_ms),
        outcome=loop.create_future(),
        deadline=loop.time() + options.delivery_timeout_s,
    )
    try:
        answer = await producer.submit(builder, shipment)
        await _answered(answer, shipment.deadline)
    except TimeoutError as exc:
        producer.halt()
        raise SinkUncertain(
            f"{shipment.where}: no answer within {options.delivery_timeout_s:g} s; the"
            " outcome is unknown",
            hint="look whether the partition has a leader and enough replicas in sync",
        ) from exc
    except Exception as exc:
        producer.halt()
        raise named(exc, shipment.where) from exc
    except BaseException:
        producer.halt()
        raise
    return shipment.count


async def _answered(answer: asyncio.Future[Any], deadline: float) -> None:
    """Return when the broker has acknowledged; raise what it says instead."""
    # Whoever leaves a shield leaves what comes later without a look, and the event loop
    # complains of a failure that nobody has asked for.
    answer.add_done_callback(_looked_at)
    async with asyncio.timeout_at(deadline):
        await asyncio.shield(answer)


def _looked_at(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
