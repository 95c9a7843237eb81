"""What a run needs from Kafka, tested one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from cdc.errors import SettingsError, SinkDenied
from cdc.finding import Finding, failure, ok, warning
from cdc.outbox import check_topic
from cdc.sinks.kafka_options import client_arguments, producer_arguments
from cdc.sinks.kafka_outcomes import named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc.sinks.kafka_options import KafkaOptions

_LIMIT_S: Final = 5.0
_DAY_MS: Final = 86_400_000
_COMPACT: Final = "compact"


async def check_cluster(
    options: KafkaOptions, constant_topics: Sequence[str]
) -> list[Finding]:
    """Test cluster, credentials and topics; each connection is tried once, for 5 s."""
    try:
        producer_arguments(options)
        admin = AIOKafkaAdminClient(**client_arguments(options))
    except SettingsError as exc:
        return [failure("kafka.settings", str(exc), exc.hint)]
    where = f"Kafka at {options.bootstrap_servers}"
    try:
        try:
            async with asyncio.timeout(_LIMIT_S):
                await admin.start()
                topics = set(await admin.list_topics())
        except Exception as exc:  # noqa: BLE001 - said as a finding
            return [_unreachable(exc, where)]
        findings = [ok("kafka.broker", f"{where} answers")]
        for topic in constant_topics:
            findings += await _check_topic(admin, options, topic, topics)
        return findings
    finally:
        await admin.close()


def _unreachable(exc: Exception, where: str) -> Finding:
    if isinstance(exc, TimeoutError):
        return failure(
            "kafka.broker",
            f"{where}: no answer within {_LIMIT_S:g} s",
            "check CDC_KAFKA__BOOTSTRAP_SERVERS, the network and the advertised"
            " listeners of the broker",
        )
    error = named(exc, where)
    name = "kafka.credentials" if isinstance(error, SinkDenied) else "kafka.broker"
    return failure(name, str(error), error.hint)


async def _check_topic(
    admin: Any, options: KafkaOptions, topic: str, topics: set[str]
) -> list[Finding]:
    wrong = check_topic(topic)
    if wrong is not None:
        return [
            failure(
                "kafka.topic", f"topic {topic!r} is not legal: {wrong}", "rename it"
            )
        ]
    if topic not in topics:
        if options.create_topics:
            return [ok("kafka.topic", f"topic {topic} will be made with its first row")]
        return [
            failure(
                "kafka.topic",
                f"topic {topic} does not exist",
                f"kafka-topics.sh --create --topic {topic}, or"
                " CDC_KAFKA__CREATE_TOPICS=true",
            )
        ]
    found = ok("kafka.topic", f"topic {topic} exists")
    try:
        async with asyncio.timeout(_LIMIT_S):
            configs = await _topic_configs(admin, topic)
    except Exception as exc:  # noqa: BLE001 - a right that a relay can do without
        return [
            found,
            warning(
                "kafka.topic_limits",
                f"the limits of topic {topic} cannot be read"
                f" ({type(exc).__name__}), so they are not checked",
                "allow DescribeConfigs on the topic, or compare max.message.bytes and"
                " retention.ms by hand",
            ),
        ]
    return [found, *_judge_limits(topic, configs, options)]


async def _topic_configs(admin: Any, topic: str) -> dict[str, str]:
    responses = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)]
    )
    entries = responses[0].resources[0][4]
    return {entry[0]: entry[1] for entry in entries}


def _judge_limits(
    topic: str, configs: Mapping[str, str], options: KafkaOptions
) -> list[Finding]:
    findings = []
    limit = int(configs.get("max.message.bytes", "0"))
    if limit and limit < options.max_request_bytes:
        findings.append(
            warning(
                "kafka.message_size",
                f"topic {topic} takes {limit} bytes, CDC_KAFKA__MAX_REQUEST_BYTES"
                f" is {options.max_request_bytes}: a record between them is a stop",
                "make them equal",
            )
        )
    else:
        findings.append(ok("kafka.message_size", f"topic {topic} takes what we send"))
    retention_ms = int(configs.get("retention.ms", "-1"))
    if 0 <= retention_ms < _DAY_MS:
        findings.append(
            warning(
                "kafka.retention",
                f"topic {topic} keeps records for {retention_ms // 1000} s after their"
                " commit: after a longer outage of the relay they are deleted unread",
                "raise retention.ms above the longest outage you want to survive",
            )
        )
    if _COMPACT in configs.get("cleanup.policy", ""):
        findings.append(
            warning(
                "kafka.cleanup_policy",
                f"topic {topic} is compacted: of the events of one key only the last"
                " stays",
                "cleanup.policy=delete, unless that is wanted",
            )
        )
    return findings
