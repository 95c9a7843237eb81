"""Reads a topic's partitions from one offset to another, and then stops.

The client library's consumer is made for reading on and on: it fetches ahead in tasks
of its own and repeats what fails without saying so. Here every request is awaited, what
fails is repeated for a limited time, and the reason is told.

Only committed records are handed out. An end that is given as the high watermark is
reached even when transaction markers, aborted records or records that compaction has
removed stand before it: what counts is the offset that comes next, not the last record.
Nothing here makes a topic, joins a group or commits an offset.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    NoBrokersAvailable,
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from cdc.errors import SinkDenied, SinkUnavailable
from cdc.sinks.kafka_outcomes import named
from cdc.sinks.kafka_topics import LOOK_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from cdc.sinks.kafka_options import KafkaOptions

Answer = TypeVar("Answer")

_END: Final = -1
_BEGINNING: Final = -2
_PIECE_BYTES: Final = 1 << 20
_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.2
_WITH_REPLICA: Final = 11
"""The version from which a fetched partition names a preferred replica."""


class TopicReader:
    """Asks brokers about topics over connections that somebody else opens and closes.

    Args:
        client: the library's, connected.
        options: ``request_timeout_s`` is how long anything may go on without progress.

    Every call raises SinkDenied, and SinkUnavailable when the time is up.

    """

    def __init__(self, client: Any, options: KafkaOptions) -> None:
        self._client = client
        self._limit_s = options.request_timeout_s
        self._servers = options.bootstrap_servers

    async def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions, sorted; none when it does not exist."""
        return await self._patiently(topic, lambda: self._look(topic))

    async def await_topic(self, topic: str) -> None:
        """Wait until a topic that has just been made is known."""

        async def look() -> None:
            if not await self._look(topic):
                raise UnknownTopicOrPartitionError(topic)

        await self._patiently(topic, look)

    async def beginning(self, topic: str, partition: int) -> int:
        """Return the offset of the first record that is kept."""
        return await self._offset(topic, partition, _BEGINNING, READ_UNCOMMITTED)

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record, committed or not."""
        return await self._offset(topic, partition, _END, READ_UNCOMMITTED)

    async def stable_end(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record before any open transaction."""
        return await self._offset(topic, partition, _END, READ_COMMITTED)

    async def since(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Return where the first record of a time or later stands, None without one.

        Args:
            topic: that exists.
            partition: of it.
            time_ms: milliseconds since 1970.

        """
        found = await self._offset(topic, partition, time_ms, READ_COMMITTED)
        return found if found >= 0 else None

    async def records(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncIterator[list[Any]]:
        """Yield committed records in pieces, from one offset up to before another.

        A piece is what a broker answers at once: a mebibyte, or one record batch.
        """
        while start < end:
            fetch = partial(self._fetch, topic, partition, start)
            records, start = await self._patiently(topic, fetch)
            wanted = [record for record in records if record.offset < end]
            if wanted:
                yield wanted

    async def prove_readable(self, topic: str, partition: int) -> None:
        """Raise SinkDenied unless we may read, whether there is a record or not.

        A broker asks for that right only where something is fetched.
        """
        end = await self.high_watermark(topic, partition)

        async def fetch() -> None:
            answer = await self._fetched(topic, partition, end, wait_ms=0)
            _raise_for(_only(answer)[0], topic)

        await self._patiently(topic, fetch)

    async def _offset(
        self, topic: str, partition: int, time_ms: int, isolation: int
    ) -> int:
        request = OffsetRequest(-1, isolation, [(topic, [(partition, time_ms)])])

        async def ask() -> int:
            answer = await self._ask_leader(topic, partition, request)
            code, _time_ms, offset = _only(answer)
            _raise_for(code, topic)
            return int(offset)

        return await self._patiently(topic, ask)

    async def _fetch(
        self, topic: str, partition: int, position: int
    ) -> tuple[list[Any], int]:
        """Return the records at a position and the position behind them."""
        answer = await self._fetched(topic, partition, position, wait_ms=_WAIT_MS)
        code, high_watermark, stable_end, *rest = _only(answer)
        if for_code(code) is OffsetOutOfRangeError:
            # Retention has been here meanwhile.
            beginning = await self.beginning(topic, partition)
            if beginning > position:
                return [], beginning
        _raise_for(code, topic)
        # The aborted transactions are the last but one until version 11 of the answer,
        # which has the preferred replica in between.
        aborted = rest[1] if answer.API_VERSION >= _WITH_REPLICA else rest[-2]
        found = PartitionRecords(
            TopicPartition(topic, partition),
            MemoryRecords(rest[-1]),
            aborted,
            position,
            None,
            None,
            check_crcs=True,
            isolation_level=READ_COMMITTED,
        )
        records = list(found)
        if found.next_fetch_offset <= position:
            raise _Stuck(_why_stuck(position, stable_end, high_watermark))
        return records, found.next_fetch_offset

    async def _fetched(
        self, topic: str, partition: int, position: int, *, wait_ms: int
    ) -> Any:
        request = FetchRequest(
            wait_ms,
            1,
            _PIECE_BYTES,
            READ_COMMITTED,
            [(topic, [(partition, position, _PIECE_BYTES)])],
        )
        return await self._ask_leader(topic, partition, request)

    async def _patiently(
        self, topic: str, attempt: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Try until it works, with fresh metadata after a failure."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limit_s
        last: Exception | None = None
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    if last is not None:
                        await asyncio.sleep(_PAUSE_S)
                        await self._look(topic)
                    return await attempt()
            except (KafkaError, OSError) as exc:
                if last is None or not isinstance(exc, TimeoutError):
                    last = exc
                self._refuse(topic, exc)
        raise SinkUnavailable(
            f"topic {topic} on Kafka at {self._servers}: nothing came for"
            f" {self._limit_s:g} s: {_reason(last)}"
        ) from last

    def _refuse(self, topic: str, exc: Exception) -> None:
        """Raise what trying again does not cure."""
        if isinstance(exc, TopicAuthorizationFailedError):
            raise SinkDenied(
                f"topic {topic}: we may not read it, or it does not exist",
                hint="allow Describe and Read on the topic to this user",
            ) from exc
        error = named(exc, f"topic {topic}")
        if isinstance(error, SinkDenied):
            raise error from exc

    async def _ask_leader(self, topic: str, partition: int, request: Any) -> Any:
        place = TopicPartition(topic, partition)
        leader = self._client.cluster.leader_for_partition(place)
        if leader is None or leader < 0:
            await self._look(topic)
            leader = self._client.cluster.leader_for_partition(place)
        if leader is None or leader < 0:
            raise LeaderNotAvailableError(f"partition {partition} has no leader")
        return await self._client.send(leader, request)

    async def _look(self, topic: str) -> list[int]:
        """Learn who leads a topic's partitions, without making the topic."""
        answer = await self._ask_any(
            MetadataRequest([topic], allow_auto_topic_creation=False)
        )
        ((code, _, _, partitions),) = answer.topics
        if for_code(code) in (UnknownTopicOrPartitionError, InvalidTopicError):
            return []
        _raise_for(code, topic)
        self._client.cluster.update_metadata(answer)
        return sorted(partition for _, partition, *_ in partitions)

    async def _ask_any(self, request: Any) -> Any:
        last: Exception = NoBrokersAvailable()
        for broker in sorted(self._client.cluster.brokers()):
            try:
                async with asyncio.timeout(LOOK_LIMIT_S):
                    return await self._client.send(broker.nodeId, request)
            except (KafkaError, OSError) as exc:
                last = exc
        raise last


class _Stuck(KafkaError):  # type: ignore[misc] # aiokafka has no types
    """A fetch brought nothing, though the end is further on."""


def _only(answer: Any) -> Sequence[Any]:
    """Return what is said of the one partition that was asked about."""
    for _topic, partitions in answer.topics:
        for _partition, *said in partitions:
            return tuple(said)
    raise KafkaError("an answer without the partition that was asked about")


def _raise_for(code: int, topic: str) -> None:
    error = for_code(code)
    if error is not NoError:
        raise error(topic)


def _why_stuck(position: int, stable_end: int, high_watermark: int) -> str:
    if stable_end <= position < high_watermark:
        return (
            f"a transaction that is still open begins at offset {position}, committed"
            " records behind it cannot be seen; kafka-transactions.sh finds and ends it"
        )
    return f"no record at offset {position}, the end is {high_watermark}"


def _reason(exc: Exception | None) -> str:
    if isinstance(exc, _Stuck):
        return str(exc.args[0])
    return "no answer" if exc is None else str(named(exc, "last error"))
