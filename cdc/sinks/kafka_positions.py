"""Positions in a topic of the cluster that has the events.

One compacted partition, shared by any number of relays. The key of a record is the
relay's name and its term, ``{name}#{term}`` with ten digits at least, the value is the
document. The highest term is believed: what a relay writes that has been replaced
without noticing stands under a lower one and moves nothing, whenever it arrives. So no
transaction and no fencing is needed, and nothing of a transaction can be left hanging.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cdc.errors import RequirementMissing, SettingsError
from cdc.outbox import check_topic
from cdc.sinks import Kept, Pace
from cdc.sinks.kafka_append import append
from cdc.sinks.kafka_options import producer_arguments
from cdc.sinks.kafka_producer import Producer
from cdc.sinks.kafka_reading import TopicReader
from cdc.sinks.kafka_state_topic import check_state_topic, make_state_topic

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from cdc.finding import Finding
    from cdc.sinks.kafka_options import KafkaOptions

PARTITION: Final = 0
_TERM_DIGITS: Final = 10
_SEPARATOR: Final = b"#"


class KafkaPositions:
    """A position store in Kafka.

    Args:
        options: how to reach the cluster; the time limits of events are its limits.
        topic: that keeps the positions.
        replication: of the topic where it is made; 0 means three, or as many as there
            are brokers.

    Attributes:
        pace: ten times a second while events flow, because what is not stored is
            repeated after a crash, and a record of half a kilobyte costs the broker
            next to nothing; once a second while only foreign WAL passes, which repeats
            nothing and only frees the disk.

    Raises SettingsError for a topic or options that cannot work.

    """

    pace = Pace(events_s=0.1, idle_s=1.0, idle_bytes=0)

    def __init__(self, options: KafkaOptions, topic: str, replication: int = 0) -> None:
        wrong = check_topic(topic)
        if wrong is not None:
            raise SettingsError(
                f"CDC_KAFKA__STATE_TOPIC: {topic[:260]!r} is not legal: {wrong}"
            )
        producer_arguments(options)
        self._options = options
        self._topic = topic
        self._replication = replication
        self._producer: Producer | None = None
        self._is_spoilt = False
        self._is_found = False
        self._terms: dict[str, set[int]] = {}
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._discard()

    async def read(self, name: str) -> Kept | None:
        """Return what the highest term has written last, None if nobody has.

        Raises RequirementMissing when there is no topic to read.
        """
        async with self._turn:
            producer = await self._ready()
            await self._find_topic(producer)
            return await self._read(producer, name)

    async def write(self, kept: Kept) -> None:
        """Keep it; durable when this returns. Clears older terms of that name.

        Raises RequirementMissing when there is no topic to write to.
        """
        async with self._turn:
            producer = await self._ready()
            if not self._is_found:
                await self._find_topic(producer)
            if kept.name not in self._terms:
                await self._read(producer, kept.name)
            known = self._terms[kept.name]
            older = sorted(term for term in known if term < kept.term)
            # One batch: the position is there before the older ones are gone.
            cleared = [(_key(kept.name, term), None) for term in older]
            records = [(_key(kept.name, kept.term), kept.document), *cleared]
            try:
                count = await append(producer, self._options, self._topic, records)
            except BaseException:
                self._is_spoilt = True
                raise
            known.add(kept.term)
            known.difference_update(older[: count - 1])

    async def check(self) -> list[Finding]:
        """Test the topic on connections of its own; a tombstone of no key is written.

        Each is tried once, for some seconds.
        """
        return await check_state_topic(self._options, self._topic)

    async def make(self) -> list[str]:
        """Make the topic if it does not exist; say what was made."""
        return await make_state_topic(self._options, self._topic, self._replication)

    async def _read(self, producer: Producer, name: str) -> Kept | None:
        reader = TopicReader(producer.client, self._options)
        start = await reader.beginning(self._topic, PARTITION)
        # Up to the high watermark, not to where a transaction is open: a position that
        # is not the last one would be worse than none.
        end = await reader.high_watermark(self._topic, PARTITION)
        wanted = name.encode()
        documents: dict[int, bytes] = {}
        async for records in reader.records(self._topic, PARTITION, start, end):
            for record in records:
                term = _term(record.key, wanted)
                if term is None:
                    continue
                if record.value is None:
                    documents.pop(term, None)
                else:
                    documents[term] = record.value
        self._terms[name] = set(documents)
        if not documents:
            return None
        highest = max(documents)
        return Kept(name, highest, documents[highest])

    async def _find_topic(self, producer: Producer) -> None:
        """Raise RequirementMissing unless the topic exists.

        Asked before the library is: that would have brokers make it, with any settings.
        """
        reader = TopicReader(producer.client, self._options)
        if not await reader.partitions(self._topic):
            raise RequirementMissing(
                f"topic {self._topic}, which keeps the positions, does not exist on"
                f" Kafka at {self._options.bootstrap_servers}",
                hint="run `cdc init`, or name the right one in CDC_KAFKA__STATE_TOPIC",
            )
        producer.client.add_topic(self._topic)
        self._is_found = True

    async def _ready(self) -> Producer:
        """Return a producer that has no failure behind it."""
        producer = self._producer
        if producer is not None and (self._is_spoilt or producer.is_worn):
            await self._discard()
            producer = None
        if producer is None:
            producer = Producer(self._options)
            await producer.start()
            self._producer = producer
        return producer

    async def _discard(self) -> None:
        producer, self._producer = self._producer, None
        self._is_spoilt = self._is_found = False
        if producer is not None:
            await producer.discard()


def _key(name: str, term: int) -> bytes:
    return b"%s%s%0*d" % (name.encode(), _SEPARATOR, _TERM_DIGITS, term)


def _term(key: bytes | None, name: bytes) -> int | None:
    """Return the term of a key, None for one of another relay or of nobody's."""
    whose, _, digits = (key or b"").rpartition(_SEPARATOR)
    if whose != name or not digits.isdigit():
        return None
    return int(digits)
