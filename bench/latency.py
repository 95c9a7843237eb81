"""Commit to acknowledgement, beside the bare round trip of one send.

    .venv/bin/python -m bench.latency [EVENTS] [PER_SECOND]

Starts a Postgres 18 and a Kafka of its own, commits one-row transactions at a steady
rate, and takes the time from the return of COMMIT to the broker's acknowledgement of
that event in this process. Then sends as many records of the same size, one at a time,
with an idempotent producer and acks=all. Both in one run; medians of a shared machine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psycopg
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pydantic import SecretStr

from cdc.local import LocalKafka, LocalPostgres
from cdc.metrics import RelayMetrics
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, Template, parse_tables
from cdc.requirements import Wanted, init
from cdc.session import Session, Source
from cdc.sinks.kafka import KafkaSink
from cdc.sinks.kafka_options import KafkaOptions
from slots.connect import Target

if TYPE_CHECKING:
    from cdc.outbox import EventBatch
    from cdc.sinks import Delivery

TOPIC = "outbox.event.order"
PAYLOAD = '{"filler": "' + "x" * 170 + '"}'
INSERT = (
    "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)"
    " VALUES ('order', %s, 'Placed', %s) RETURNING id::text"
)


class TimedSink(KafkaSink):
    """Notes when each event was acknowledged."""

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options)
        self.acknowledged: dict[str, float] = {}
        self.grown = asyncio.Event()

    async def publish(self, batch: EventBatch) -> Delivery:
        """Publish, and put a note behind the acknowledgement."""
        delivery = await super().publish(batch)

        async def noted() -> None:
            await delivery
            now = time.perf_counter()
            for event in batch.events:
                self.acknowledged[event.event_id] = now
            self.grown.set()

        return noted()


def source_of(dsn: str) -> Source:
    """Describe the outbox to the relay."""
    mapping = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))
    return Source(
        target=Target(dsn=SecretStr(dsn)),
        wanted=Wanted(
            slot="walferry",
            plugin="pgoutput",
            publication="walferry",
            tables=parse_tables("public.outbox"),
            required_columns=mapping.required_columns(),
        ),
        mapping=mapping,
    )


async def through_the_relay(
    dsn: str, servers: str, count: int, per_second: float
) -> list[float]:
    """Commit at a steady rate; return seconds from commit to acknowledgement."""
    source = source_of(dsn)
    await init(source.target, source.wanted)
    sink = TimedSink(KafkaOptions(bootstrap_servers=servers))
    started = asyncio.Event()
    session = Session(source, sink, RelayMetrics(), started=started.set)
    task = asyncio.create_task(session.run())
    await started.wait()
    committed: dict[str, float] = {}
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as link:
        begin = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(begin + number / per_second - time.perf_counter())
            cursor = await link.execute(INSERT, (f"k{number % 100}", PAYLOAD))
            row = await cursor.fetchone()
            committed[str(row[0]) if row else ""] = time.perf_counter()
    async with asyncio.timeout(30):
        while len(sink.acknowledged) < count:
            sink.grown.clear()
            await sink.grown.wait()
    session.stop()
    await task
    # An acknowledgement may overtake the answer to the COMMIT in this one process.
    return [max(0.0, sink.acknowledged[key] - at) for key, at in committed.items()]


async def bare_sends(servers: str, count: int) -> list[float]:
    """Send records one at a time; return the seconds each took."""
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all"
    )
    await producer.start()
    taken = []
    try:
        for number in range(count + 20):
            began = time.perf_counter()
            await producer.send_and_wait(
                TOPIC, PAYLOAD.encode(), key=b"k%d" % (number % 100)
            )
            taken.append(time.perf_counter() - began)
    finally:
        await producer.stop()
    return taken[20:]


def row(name: str, seconds: list[float]) -> str:
    """Return a line of the table, in milliseconds."""
    cuts = quantiles(seconds, n=100)
    return (
        f"{name:<28} p50 {median(seconds) * 1e3:7.2f} ms"
        f"   p99 {cuts[98] * 1e3:7.2f} ms   max {max(seconds) * 1e3:7.2f} ms"
    )


async def measure(dsn: str, servers: str, count: int, per_second: float) -> None:
    """Measure both and print them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 6, 1)])
    await admin.close()
    relayed = await through_the_relay(dsn, servers, count, per_second)
    print(row(f"commit to ack, {per_second:g}/s", relayed))
    print(row("one aiokafka send", await bare_sends(servers, count)))


def main() -> None:
    """Start the servers and measure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    per_second = float(sys.argv[2]) if len(sys.argv) > 2 else 100.0
    with LocalPostgres("18") as postgres, LocalKafka() as kafka:
        uvloop.run(measure(postgres.dsn(), kafka.bootstrap_servers, count, per_second))


if __name__ == "__main__":
    main()
