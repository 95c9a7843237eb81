"""Which topics exist, how many partitions they have, and what they take.

Asking never creates a topic by itself: the request says so, because a broker may make
whatever it is asked about, with one partition and for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from cdc.errors import RecordRefused, RequirementMissing, SinkDenied, SinkUnavailable
from cdc.outbox import check_topic
from cdc.sinks.kafka_options import client_arguments
from cdc.sinks.kafka_outcomes import named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cdc.sinks.kafka_options import KafkaOptions

LOOK_LIMIT_S: Final = 5.0
_REQUIRE_LIMIT_S: Final = 2.0
_REQUIRE_PAUSE_S: Final = 0.2
_CREATE_LIMIT_S: Final = 15.0
_REPLICATION: Final = 3
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
_WITHOUT_PARTITIONS: Final = (
    UnknownTopicOrPartitionError,
    # It is being made at this moment.
    LeaderNotAvailableError,
)


@dataclass(slots=True)
class Topic:
    """A topic that exists.

    Attributes:
        partitions: how many, whether their leaders are available or not.
        limit_bytes: ``max.message.bytes``, 0 when we may not know it.
        unkeyed: partitions in turn, for events without a key.

    """

    name: str
    partitions: int
    limit_bytes: int
    unkeyed: Iterator[int]


class TopicDirectory:
    """Looks topics up through the producer's own connections.

    Args:
        client: of a started producer.
        options: whether and how to make topics.

    Attributes:
        reasons: by topic, why it cannot be had, when that is not just its absence.

    """

    def __init__(self, client: Any, options: KafkaOptions) -> None:
        self._client = client
        self._options = options
        self._topics: dict[str, Topic] = {}
        self._unanswered_since: float | None = None
        self.reasons: dict[str, str] = {}

    def known(self, name: str) -> Topic | None:
        """Return a topic that is known to exist, with its present partitions.

        The client refreshes its metadata by itself: growth shows here, and a topic that
        has been deleted is not known any more.
        """
        topic = self._topics.get(name)
        if topic is None:
            return None
        partitions = self._client.cluster.partitions_for_topic(name)
        if not partitions:
            del self._topics[name]
            return None
        if len(partitions) != topic.partitions:
            topic.partitions = len(partitions)
            topic.unkeyed = itertools.cycle(range(topic.partitions))
        return topic

    async def require(self, names: Collection[str]) -> None:
        """Raise RequirementMissing unless all of them exist or could be made."""
        if not names:
            return
        missing = list(names)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REQUIRE_LIMIT_S):
                while missing:
                    await self.look_up(missing)
                    missing = [name for name in names if self.known(name) is None]
                    # One just made is not known everywhere at once.
                    await asyncio.sleep(_REQUIRE_PAUSE_S if missing else 0)
        for name in missing:
            raise RequirementMissing(
                f"topic {name} {self.reasons.get(name, 'does not exist')}",
                hint="create it, or set CDC_KAFKA__CREATE_TOPICS=true",
            )

    async def find(self, names: Collection[str]) -> None:
        """Look topics up; while no broker answers they count as missing.

        Raises what :meth:`look_up` raises, SinkUnavailable only after
        ``delivery_timeout_s``: the servers may have moved, and another session begins
        at the bootstrap servers.
        """
        if not names:
            return
        now = asyncio.get_running_loop().time()
        try:
            await self.look_up(names)
        except SinkUnavailable as exc:
            self._unanswered_since = self._unanswered_since or now
            if now - self._unanswered_since > self._options.delivery_timeout_s:
                raise
            self.reasons |= dict.fromkeys(names, f"cannot be looked up ({exc})")
        else:
            self._unanswered_since = None

    async def look_up(self, names: Collection[str]) -> None:
        """Get to know those that exist, and make the others where that is allowed.

        Raises:
            RecordRefused: a name is illegal.
            SinkDenied: we may not see a topic, or not make it.
            SinkUnavailable: no broker answers.

        """
        for name in names:
            wrong = check_topic(name)
            if wrong is not None:
                raise _illegal(name, wrong)
        for name in names:
            self.reasons.pop(name, None)
        existing = await self._existing(names)
        missing = [name for name in names if name not in existing]
        if missing and self._options.create_topics:
            await self._create(missing)
            existing |= await self._existing(missing)
        if existing:
            await self._remember(existing)

    async def _existing(self, names: Collection[str]) -> set[str]:
        answer = await self._ask(
            MetadataRequest(list(names), allow_auto_topic_creation=False)
        )
        existing = set()
        for code, name, _is_internal, partitions in answer.topics:
            error = for_code(code)
            if error is NoError and partitions:
                existing.add(name)
            elif error is TopicAuthorizationFailedError:
                raise SinkDenied(
                    f"topic {name}: we may not see it, or it does not exist",
                    hint="allow Describe and Write on the topic to this user",
                )
            elif error is InvalidTopicError:
                raise _illegal(name, "the broker says so")
            elif error is not NoError and error not in _WITHOUT_PARTITIONS:
                self.reasons[name] = error.__name__
        return existing

    async def _remember(self, names: Collection[str]) -> None:
        configs = await self.configs(names, [MAX_MESSAGE_BYTES])
        # They exist, so the client may ask for them by name: it keeps them current.
        for name in names:
            self._client.add_topic(name)
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                await self._client.force_metadata_update()
        except TimeoutError as exc:
            raise SinkUnavailable("Kafka: no metadata in time") from exc
        for name in names:
            count = len(self._client.cluster.partitions_for_topic(name) or ())
            if count:
                limit = int(configs.get(name, {}).get(MAX_MESSAGE_BYTES, 0))
                self._topics[name] = Topic(
                    name, count, limit, itertools.cycle(range(count))
                )

    async def configs(
        self, names: Collection[str], keys: Collection[str]
    ) -> dict[str, dict[str, str]]:
        """Return settings of topics; nothing of a topic whose settings we may not see.

        Raises SinkUnavailable when no broker answers.
        """
        resources = [(ConfigResourceType.TOPIC, name, list(keys)) for name in names]
        answer = await self._ask(DescribeConfigsRequest(resources))
        return {
            name: {entry[0]: entry[1] for entry in entries}
            for code, _message, _kind, name, entries in answer.resources
            if not code
        }

    async def _ask(self, request: Any) -> Any:
        """Ask one broker after the other until one answers."""
        last: Exception | None = None
        for broker in sorted(self._client.cluster.brokers()):
            try:
                async with asyncio.timeout(LOOK_LIMIT_S):
                    return await self._client.send(broker.nodeId, request)
            except (KafkaError, OSError) as exc:
                last = exc
        raise SinkUnavailable(
            f"Kafka at {self._options.bootstrap_servers}: no broker answers"
        ) from last

    async def _create(self, names: Collection[str]) -> None:
        options = self._options
        admin = AIOKafkaAdminClient(**client_arguments(options))
        try:
            async with asyncio.timeout(_CREATE_LIMIT_S):
                await admin.start()
                brokers = len(self._client.cluster.brokers())
                replication = options.topic_replication or min(_REPLICATION, brokers)
                answer = await admin.create_topics(
                    [
                        NewTopic(name, options.topic_partitions, replication)
                        for name in names
                    ]
                )
        except (KafkaError, OSError) as exc:
            raise named(exc, "making topics") from exc
        finally:
            await close_admin(admin)
        for name, code, message in answer.topic_errors:
            error = for_code(code)
            if error in (NoError, TopicAlreadyExistsError):
                continue
            found = named(error(message or ""), f"making topic {name}")
            if isinstance(found, SinkDenied):
                raise found
            self.reasons[name] = str(found)


async def close_admin(admin: Any) -> None:
    """Close an admin client in bounded time."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            await admin.close()
    except (OSError, RuntimeError, KafkaError):
        return


def _illegal(name: str, wrong: str) -> RecordRefused:
    return RecordRefused(
        f"topic {name[:260]!r} is not legal: {wrong}",
        hint="change CDC_OUTBOX__TOPIC or the column it is made of",
    )
