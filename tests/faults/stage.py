"""Where the faults happen: servers, an outbox, a topic, and relays as processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slots.lsn import Lsn
from tests.relay_process import RelayProcess, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kafka_records import Topics
    from tests.postgres_source import Source

RECOVERY_S = 10.0
"""Streaming again within this time of a server's return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A source with an outbox, a Kafka, and a topic of six partitions."""

    source: Source
    kafka: str
    topics: Topics
    topic: str

    def relay(self, **settings: str) -> RelayProcess:
        """Return a relay that is yet to be started."""
        defaults = {
            "CDC_KAFKA__BOOTSTRAP_SERVERS": self.kafka,
            "CDC_OUTBOX__TOPIC": self.topic,
            "CDC_OUTBOX__COLUMNS__HEADERS": "headers",
            "CDC_BACKOFF__MAX_S": "2",
        }
        return RelayProcess(environment(self.source, **(defaults | settings)))

    async def wal_end(self) -> Lsn:
        """Return where the server writes at the moment."""
        end = await self.source.value("SELECT pg_current_wal_lsn()::text")
        return Lsn.parse(end)

    async def confirmed(self) -> Lsn:
        """Return how far everything is acknowledged and told, as the server knows."""
        row = await self.source.slot_row()
        assert row is not None
        return Lsn.parse(row["confirmed_flush_lsn"])

    async def caught_up(self, deadline_s: float = RECOVERY_S) -> float:
        """Wait until all that is committed now is acknowledged and confirmed.

        Returns the seconds that it took.
        """
        began = time.monotonic()
        end = await self.wal_end()

        async def is_told() -> bool:
            return await self.confirmed() >= end

        await eventually(is_told, deadline_s, what="all that is committed arrives")
        return time.monotonic() - began

    async def set(self) -> None:
        """Make the outbox and the topic."""
        await self.source.create_outbox()
        await self.topics.create(self.topic, partitions=6)
