"""Which topics exist, and how many partitions they have."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from cdc.errors import RecordRefused, SinkDenied
from cdc.outbox import check_topic
from cdc.sinks.kafka_options import client_arguments
from cdc.sinks.kafka_outcomes import named

if TYPE_CHECKING:
    from cdc.sinks.kafka_options import KafkaOptions

_LOOK_LIMIT_S: Final = 15.0
_FRESH_S: Final = 30.0
"""How long a partition count is believed without a look at the metadata."""

_REPLICATION: Final = 3
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class TopicDirectory:
    """Looks topics up through the producer's own client.

    Args:
        client: of a started producer.
        options: whether and how to make topics.

    """

    def __init__(self, client: Any, options: KafkaOptions) -> None:
        self._client = client
        self._options = options
        self._partitions: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> int | None:
        """Return the number of partitions without asking anybody, None if unknown."""
        entry = self._partitions.get(topic)
        if entry is None:
            return None
        count, seen_at = entry
        now = time.monotonic()
        if now - seen_at > _FRESH_S:
            # The client refreshes its metadata by itself; growth shows here.
            count = len(self._client.cluster.partitions_for_topic(topic) or ()) or count
            self._partitions[topic] = (count, now)
        return count

    async def look_up(self, topic: str) -> int:
        """Return the number of partitions, 0 when the topic does not exist.

        Makes the topic where that is allowed. Raises RecordRefused for an illegal name,
        else what :func:`named` returns.
        """
        wrong = check_topic(topic)
        if wrong is not None:
            raise RecordRefused(f"topic {topic[:260]!r} is not legal: {wrong}")
        try:
            async with asyncio.timeout(_LOOK_LIMIT_S):
                count = await self._count(topic)
                if not count and self._options.create_topics:
                    await self._create(topic)
                    count = await self._until_seen(topic)
        except Exception as exc:
            raise named(exc, f"topic {topic}") from exc
        if count:
            self._partitions[topic] = (count, time.monotonic())
        return count

    async def wait_for(self, topic: str) -> int:
        """Wait until a topic exists, asking ever less often; return its partitions."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            count = await self.look_up(topic)
            if count:
                return count

    async def _count(self, topic: str) -> int:
        # The whole list: asking for one topic by name would create it on a broker that
        # creates topics by itself.
        every = await self._client.fetch_all_metadata()
        if topic in every.unauthorized_topics:
            raise SinkDenied(f"topic {topic}: not allowed to describe it")
        if not every.partitions_for_topic(topic):
            return 0
        # It exists, so it may be asked for by name: the client then keeps it current.
        return len(await self._client._wait_on_metadata(topic))  # noqa: SLF001 - the public way in is a producer method around it

    async def _until_seen(self, topic: str) -> int:
        while True:
            count = await self._count(topic)
            if count:
                return count
            await asyncio.sleep(_FIRST_PAUSE_S)

    async def _create(self, topic: str) -> None:
        options = self._options
        admin = AIOKafkaAdminClient(**client_arguments(options))
        try:
            await admin.start()
            brokers = len(self._client.cluster.brokers())
            replication = options.topic_replication or min(_REPLICATION, brokers)
            answer = await admin.create_topics(
                [NewTopic(topic, options.topic_partitions, replication)]
            )
        finally:
            await admin.close()
        for _topic, code, *message in answer.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise named(
                    error(message[0] if message else ""), f"making topic {topic}"
                )
