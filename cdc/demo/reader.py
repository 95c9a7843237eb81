"""The demo's consumer: reads what the relay has published, and counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S: Final = 0.05
_SHOWN: Final = 5
_PARTITIONS: Final = 3


@dataclass(slots=True)
class Received:
    """What the consumer has seen.

    Attributes:
        counts: how often each event id came.
        latest: the last few, for the picture: key, type, position.

    """

    counts: dict[str, int] = field(default_factory=dict)
    latest: list[str] = field(default_factory=list)

    def add(self, headers: dict[str, str], key: str) -> None:
        """Take note of a record."""
        event_id = headers["id"]
        self.counts[event_id] = self.counts.get(event_id, 0) + 1
        self.latest.append(f"{key:<16} {headers['type']:<14} {headers['cdc.position']}")
        del self.latest[:-_SHOWN]


async def make_topic(bootstrap_servers: str, topic: str) -> None:
    """Make the topic, as an operator would."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])
    finally:
        await admin.close()


async def read_kafka(bootstrap_servers: str, topic: str, received: Received) -> None:
    """Read a topic from its beginning until cancelled."""
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    ) as consumer:
        async for record in consumer:
            headers = {name: value.decode() for name, value in record.headers if value}
            received.add(headers, (record.key or b"").decode())


async def read_jsonl(path: Path, received: Received) -> None:
    """Read a file of events as it grows, until cancelled."""
    with path.open("rb") as lines:
        rest = b""
        while True:
            chunk = lines.read()
            if not chunk:
                await asyncio.sleep(_POLL_S)
                continue
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                record = orjson.loads(line)
                headers = {name: value for name, value in record["headers"] if value}
                received.add(headers, record["key"] or "")
