"""A write that is given up, whenever that is, leaves nothing for the loop to report."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from cdc.sinks import Kept
from cdc.sinks.kafka_options import KafkaOptions
from cdc.sinks.kafka_positions import KafkaPositions

if TYPE_CHECKING:
    from tests.kafka_records import Topics

pytestmark = [pytest.mark.kafka]

ROUNDS = 20


async def test_a_cancelled_write_of_a_position_is_no_complaint(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """As at the end of a run: the keeper is cancelled while it writes."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: complaints.append(context)
    )
    await topics.create(topic, configs={"cleanup.policy": "compact"})
    options = KafkaOptions(bootstrap_servers=kafka.bootstrap_servers)
    for number in range(ROUNDS):
        async with KafkaPositions(options, topic) as store:
            await store.write(Kept("relay", 1, b"{}"))
            writing = asyncio.create_task(store.write(Kept("relay", 1, b'{"n":1}')))
            for _ in range(number % 20):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        del writing
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
