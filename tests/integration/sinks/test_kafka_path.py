"""From a committed row to a record that a consumer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc.sinks.kafka import KafkaSink
from cdc.sinks.kafka_options import KafkaOptions
from tests.in_process import relay_source, running

if TYPE_CHECKING:
    from tests.kafka_records import Topics
    from tests.postgres_source import Source


async def test_rows_arrive_in_order_with_key_value_headers_and_commit_time(
    source: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    await source.create_outbox()
    await topics.create(topic, partitions=3)
    sink = KafkaSink(KafkaOptions(bootstrap_servers=kafka.bootstrap_servers))

    async with running(relay_source(source, topic=topic), sink):
        ids = [
            await source.insert_event("order", f"k-{n % 5}", payload={"n": n})
            for n in range(50)
        ]
        records = await topics.read(topic, 50)

    assert len(records) == 50
    assert {dict(record.headers)["id"].decode() for record in records} == set(ids)
    for key in range(5):
        mine = [r.value for r in records if r.key == f"k-{key}".encode()]
        assert mine == [b'{"n": %d}' % n for n in range(key, 50, 5)]
