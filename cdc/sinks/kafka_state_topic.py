"""The topic that keeps positions: how it has to be, tested and made."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from cdc.errors import CdcError, SettingsError, SinkDenied
from cdc.finding import failure, ok
from cdc.sinks.kafka_append import append
from cdc.sinks.kafka_connection import connected
from cdc.sinks.kafka_options import client_arguments, producer_arguments
from cdc.sinks.kafka_outcomes import named
from cdc.sinks.kafka_producer import Producer
from cdc.sinks.kafka_reading import TopicReader
from cdc.sinks.kafka_topics import TopicDirectory, close_admin

if TYPE_CHECKING:
    from cdc.finding import Finding
    from cdc.sinks.kafka_options import KafkaOptions

NAME: Final = "kafka.state_topic"
_LIMIT_S: Final = 5.0
_CREATE_LIMIT_S: Final = 15.0
_REPLICATION: Final = 3
_CLEANUP: Final = "cleanup.policy"
_CONFIGS: Final = {
    _CLEANUP: "compact",
    # A start reads all of it, so what has been replaced is to go soon: a segment that
    # is being written is not cleaned, and half a topic may be waste by default.
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_PROBE: Final = (b"#check", None)
"""A tombstone of a key that no relay has: whatever it says is removed is not there."""


async def make_state_topic(
    options: KafkaOptions, topic: str, replication: int
) -> list[str]:
    """Make the topic if it does not exist, and wait until it is to be seen.

    Args:
        options: how to reach the cluster.
        topic: its name, a legal one.
        replication: 0 means three, or as many as there are brokers.

    Returns:
        what was made, for the user; nothing when it was there.

    Raises:
        SinkDenied: we may not see it, or not make it.
        SinkUnavailable: no broker answers.
        SinkUncertain: the brokers refuse it.

    """
    async with connected(options) as client:
        reader = TopicReader(client, options)
        if await reader.partitions(topic):
            return []
        copies = replication or min(_REPLICATION, len(client.cluster.brokers()))
        is_ours = await _create(options, NewTopic(topic, 1, copies, None, _CONFIGS))
        await reader.await_topic(topic)
    return [f"topic {topic} (compacted, {copies} replicas)"] if is_ours else []


async def check_state_topic(options: KafkaOptions, topic: str) -> list[Finding]:
    """Test whether positions would be kept there, and stay; changes nothing kept."""
    quick = dataclasses.replace(
        options,
        start_timeout_s=_LIMIT_S,
        request_timeout_s=_LIMIT_S,
        delivery_timeout_s=_LIMIT_S,
        create_topics=False,
    )
    try:
        producer_arguments(quick)
        return [await _judge(quick, topic)]
    except SettingsError as exc:
        return [failure("kafka.settings", str(exc), exc.hint)]
    except CdcError as exc:
        return [failure(NAME, str(exc), exc.hint)]


async def _judge(options: KafkaOptions, topic: str) -> Finding:
    async with connected(options) as client:
        reader = TopicReader(client, options)
        partitions = await reader.partitions(topic)
        if not partitions:
            return failure(
                NAME,
                f"topic {topic}, which keeps the positions, does not exist",
                "cdc init",
            )
        if len(partitions) > 1:
            return failure(
                NAME,
                f"topic {topic} keeps the positions and has {len(partitions)}"
                " partitions; they need the order of one",
                "set CDC_KAFKA__STATE_TOPIC to another name, then: cdc init",
            )
        directory = TopicDirectory(client, options)
        configs = (await directory.configs([topic], [_CLEANUP])).get(topic)
        if configs is not None and configs.get(_CLEANUP) != _CONFIGS[_CLEANUP]:
            return _not_compacted(options, topic, configs.get(_CLEANUP, ""))
        await reader.prove_readable(topic, 0)
    await _write_probe(options, topic)
    seen = "is compacted" if configs else "can be read and written (settings not shown)"
    return ok(NAME, f"topic {topic} {seen}")


def _not_compacted(options: KafkaOptions, topic: str, policy: str) -> Finding:
    return failure(
        NAME,
        f"topic {topic} keeps the positions and has {_CLEANUP}={policy}: positions"
        " would be deleted",
        f"kafka-configs.sh --bootstrap-server {options.bootstrap_servers} --alter"
        f" --entity-type topics --entity-name {topic} --add-config {_CLEANUP}=compact",
    )


async def _write_probe(options: KafkaOptions, topic: str) -> None:
    """Raise what a write would."""
    producer = Producer(options)
    await producer.start()
    try:
        producer.client.add_topic(topic)
        await append(producer, options, topic, [_PROBE])
    except SinkDenied as exc:
        raise SinkDenied(
            f"topic {topic}: we may not write to it",
            hint="allow Write on the topic to this user",
        ) from exc
    finally:
        await producer.discard()


async def _create(options: KafkaOptions, wanted: Any) -> bool:
    """Ask for a topic; tell whether it was us who made it."""
    admin = AIOKafkaAdminClient(**client_arguments(options))
    try:
        async with asyncio.timeout(_CREATE_LIMIT_S):
            await admin.start()
            answer = await admin.create_topics([wanted])
    except (KafkaError, OSError) as exc:
        raise named(exc, f"making topic {wanted.name}") from exc
    finally:
        await close_admin(admin)
    ((_, code, message),) = answer.topic_errors
    error = for_code(code)
    if error is TopicAlreadyExistsError:
        return False
    if error is not NoError:
        raise named(error(message or ""), f"making topic {wanted.name}")
    return True
