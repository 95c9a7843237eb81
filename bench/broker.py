"""The Kafka side of a measurement: topics, and how many records they have."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from cdc.local import LocalKafka

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

PARTITIONS: Final = 6
_ANSWER_DEADLINE_S: Final = 60.0
_AT_ONCE: Final = 100
"""Topics made by one request."""


class Broker:
    """A Kafka of its own, as an async context manager."""

    def __init__(self) -> None:
        self._server = LocalKafka()
        self._admin: AIOKafkaAdminClient | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._server.start)
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await self._admin.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client and end the broker; harmless when repeated."""
        admin, self._admin = self._admin, None
        try:
            if admin is not None:
                async with asyncio.timeout(5):
                    await admin.close()
        except TimeoutError:
            pass  # the broker is ended next
        finally:
            await asyncio.to_thread(self._server.close)

    @property
    def address(self) -> str:
        """Where clients begin."""
        return self._server.bootstrap_servers

    @property
    def release(self) -> str:
        """The broker's release."""
        return self._server.version

    @asynccontextmanager
    async def topics(
        self,
        names: Sequence[str],
        *,
        partitions: int = PARTITIONS,
        configs: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Ends]:
        """Have empty topics to the end of the block; they are deleted then."""
        assert self._admin is not None
        admin = self._admin
        made: list[str] = []
        try:
            for first in range(0, len(names), _AT_ONCE):
                part = list(names[first : first + _AT_ONCE])
                made += part
                wanted = [
                    NewTopic(name, partitions, 1, topic_configs=dict(configs or {}))
                    for name in part
                ]
                async with asyncio.timeout(_ANSWER_DEADLINE_S):
                    await admin.create_topics(wanted)
            async with Ends(self.address, names, partitions) as ends:
                yield ends
        finally:
            for first in range(0, len(made), _AT_ONCE):
                async with asyncio.timeout(_ANSWER_DEADLINE_S):
                    await admin.delete_topics(made[first : first + _AT_ONCE])


class Ends:
    """Counts the records of topics by where their partitions end."""

    def __init__(self, address: str, names: Sequence[str], partitions: int) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=address, enable_auto_commit=False
        )
        self._partitions = [
            TopicPartition(name, number)
            for name in names
            for number in range(partitions)
        ]

    async def __aenter__(self) -> Self:
        try:
            # The client keeps the leaders of what is assigned at hand; paused, so that
            # it asks where the partitions end and never for what is in them.
            self._consumer.assign(self._partitions)
            self._consumer.pause(*self._partitions)
            async with asyncio.timeout(_ANSWER_DEADLINE_S):
                await self._consumer.start()
                await self.total()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client."""
        async with asyncio.timeout(_ANSWER_DEADLINE_S):
            await self._consumer.stop()

    async def total(self) -> int:
        """Return how many records the topics have."""
        async with asyncio.timeout(_ANSWER_DEADLINE_S):
            ends = await self._consumer.end_offsets(self._partitions)
        return sum(ends.values())
