"""The consuming process of a latency measurement.

    python -m bench.reader SERVERS TOPIC PARTITIONS OUTPUT EVENTS DEADLINE_S

Makes the file OUTPUT.ready when it is at the end of the topic. Reads so many events
and then writes three 64-bit numbers each to OUTPUT: its ``n``, when it was consumed by
the monotonic clock in nanoseconds, and the record's timestamp in milliseconds, which is
when the broker appended it. Exits with 1 when they do not come in time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = b'{"n": '


async def read(consumer: AIOKafkaConsumer, events: int, notes: array[int]) -> None:
    """Take a note of each record until there are so many."""
    while len(notes) < 3 * events:
        batches = await consumer.getmany(timeout_ms=1000)
        now = time.monotonic_ns()
        for records in batches.values():
            for record in records:
                notes.extend((event_number(record.value), now, record.timestamp))


def event_number(payload: bytes) -> int:
    """Return the n of a payload; raise ValueError when it is not one of ours."""
    if not payload.startswith(_PREFIX):
        raise ValueError(f"not an event of this load: {payload[:40]!r}")
    return int(payload[len(_PREFIX) : payload.index(b",", len(_PREFIX))])


async def consume(arguments: Sequence[str], ready: Path) -> array[int]:
    """Read what the arguments say and return what OUTPUT gets.

    Raises:
        TimeoutError: the events did not come in time; how many did is in the message.

    """
    servers, topic, partitions, events, deadline_s = arguments
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, one) for one in range(int(partitions))])
    notes = array("q")
    await consumer.start()
    try:
        await consumer.seek_to_end()
        for partition in consumer.assignment():
            await consumer.position(partition)
        await asyncio.to_thread(ready.touch)
        async with asyncio.timeout(float(deadline_s)):
            await read(consumer, int(events), notes)
    except TimeoutError:
        raise TimeoutError(f"{len(notes) // 3} of {events} events came") from None
    finally:
        await consumer.stop()
    return notes


def main() -> int:
    """Read, then tell when."""
    servers, topic, partitions, output, *limits = sys.argv[1:]
    arguments = [servers, topic, partitions, *limits]
    try:
        notes = uvloop.run(consume(arguments, Path(f"{output}.ready")))
    except TimeoutError as exc:
        print(exc, file=sys.stderr)
        return 1
    Path(output).write_bytes(notes.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
