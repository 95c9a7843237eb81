"""What stands in a topic, as a read_committed consumer sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

Record = Any  # aiokafka.ConsumerRecord, which has no types


class Topics:
    """Topics of one test: made, listed, read, and deleted in the end."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._prefix = prefix
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)

    async def __aenter__(self) -> Self:
        await self._admin.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        names = await self.names()
        if names:
            await self._admin.delete_topics(names)
        await self._admin.close()

    async def names(self) -> list[str]:
        """Return the topics of this test that exist, sorted."""
        every = await self._admin.list_topics()
        return sorted(name for name in every if name.startswith(self._prefix))

    async def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic and return its name."""
        topic = NewTopic(name, partitions, 1, topic_configs=dict(configs or {}))
        answer = await self._admin.create_topics([topic])
        for _, code, message in answer.topic_errors:
            assert code == 0, f"{name}: {message}"
        return name

    async def read(
        self, topic: str, count: int, deadline_s: float = 20.0
    ) -> list[Record]:
        """Return records as they arrive until there are so many; fail at the deadline.

        More than asked for are returned if they come along: a test of "exactly" counts.
        """
        records: list[Record] = []
        try:
            async with (
                asyncio.timeout(deadline_s),
                await self._consumer(topic, deadline_s) as consumer,
            ):
                while len(records) < count:
                    records += await _poll(consumer)
        except TimeoutError:
            raise AssertionError(
                f"{len(records)} of {count} records of {topic} within {deadline_s} s"
            ) from None
        return records

    async def read_to_end(self, topic: str, deadline_s: float = 20.0) -> list[Record]:
        """Return every committed record that the topic holds at this moment."""
        records: list[Record] = []
        async with (
            asyncio.timeout(deadline_s),
            await self._consumer(topic, deadline_s) as consumer,
        ):
            ends = await consumer.end_offsets(consumer.assignment())
            for partition, end in ends.items():
                # Positions, not records: commit markers have offsets as well.
                while await consumer.position(partition) < end:
                    records += await _poll(consumer)
        return records

    async def _consumer(self, topic: str, deadline_s: float) -> AIOKafkaConsumer:
        async def exists() -> bool:
            return topic in await self._admin.list_topics()

        await eventually(exists, deadline_s, what=f"topic {topic} exists")
        described = (await self._admin.describe_topics([topic]))[0]
        partitions = [
            TopicPartition(topic, partition["partition"])
            for partition in described["partitions"]
        ]
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.assign(partitions)
        return consumer


async def _poll(consumer: AIOKafkaConsumer) -> list[Record]:
    batches = await consumer.getmany(timeout_ms=100)
    return [record for batch in batches.values() for record in batch]
