"""Which events the topics of a cluster hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc.sinks.kafka_connection import close, connect
from cdc.sinks.kafka_reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Self

    from cdc.sinks.kafka_options import KafkaOptions

_ID: Final = "id"


class KafkaReadBack:
    """Reads topics back: committed records, by their ``id`` header.

    One connection to each broker, however many topics are asked about.

    Args:
        options: how to reach the cluster; ``request_timeout_s`` is how long anything
            may go on without progress.

    Raises SinkDenied and SinkUnavailable.

    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._client: Any = None

    async def __aenter__(self) -> Self:
        self._client = await connect(self._options)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await close(self._client, self._options)

    async def ids(self, topic: str, *, since_ms: int) -> AsyncIterator[list[str]]:
        """Yield the ids of a topic's records, in pieces; see :class:`ReadBack`.

        A broker names the first record of that time or later. Times are not in order,
        so some of before come along; none of the others stands before that record.
        """
        reader = TopicReader(self._client, self._options)
        for partition in await reader.partitions(topic):
            end = await reader.stable_end(topic, partition)
            start = await self._start(reader, topic, partition, since_ms)
            if start is None:
                continue
            async for records in reader.records(topic, partition, start, end):
                yield [found for found in map(_id_of, records) if found is not None]

    async def _start(
        self, reader: TopicReader, topic: str, partition: int, since_ms: int
    ) -> int | None:
        if since_ms <= 0:
            return await reader.beginning(topic, partition)
        return await reader.since(topic, partition, since_ms)


def _id_of(record: Any) -> str | None:
    for name, value in record.headers:
        if name == _ID and value is not None:
            return bytes(value).decode(errors="replace")
    return None
