"""The program that a user of walbox writes: its transactions into Kafka with acks=all.

    python walbox_handler.py DSN SLOT PUBLICATION SERVERS PREFIX

Runs in walbox' own environment and takes nothing from this repository. The checkpoint
is saved on a pooled connection, and for many events at once.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from psycopg_pool import AsyncConnectionPool  # type: ignore[import-not-found]
from walbox import (  # type: ignore[import-not-found]
    ChangeKind,
    Walbox,
    WalboxOptions,
)

if TYPE_CHECKING:
    from walbox import CheckpointHandle, Transaction

_EVENTS_A_CHECKPOINT = 1_000


class Relay:
    """Publishes transactions, and waits for the broker once in a while."""

    def __init__(self, producer: AIOKafkaProducer, prefix: str) -> None:
        self._producer = producer
        self._prefix = prefix
        self._sent: list[asyncio.Future[Any]] = []

    async def handle(self, tx: Transaction, checkpoint: CheckpointHandle) -> None:
        """Send a transaction's events; every so often await all and save the place."""
        for change in tx.changes:
            if change.kind != ChangeKind.INSERT:
                continue
            row = change.new
            future = await self._producer.send(
                f"{self._prefix}.{row['aggregatetype']}",
                row["payload"].encode(),
                key=row["aggregateid"].encode(),
                headers=[("id", row["id"].encode()), ("type", row["type"].encode())],
            )
            self._sent.append(future)
        if len(self._sent) >= _EVENTS_A_CHECKPOINT:
            await asyncio.gather(*self._sent)
            self._sent.clear()
            await checkpoint.save(tx.commit_lsn)


async def main() -> None:
    """Relay until ended by a signal."""
    dsn, slot, publication, servers, prefix = sys.argv[1:]
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        max_batch_size=256 << 10,
    )
    options = WalboxOptions(
        consumer_name=slot, dsn=dsn, slot_name=slot, publication_name=publication
    )
    async with producer, AsyncConnectionPool(dsn, min_size=1, open=False) as pool:
        client = Walbox.build_with_pool(options, pool)
        await client.run(Relay(producer, prefix).handle)


if __name__ == "__main__":
    asyncio.run(main())
