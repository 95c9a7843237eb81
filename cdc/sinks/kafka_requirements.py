"""What a run needs from Kafka, tested one by one.

A producer of its own is started and thrown away: that tests the way there, the
credentials and the right to send idempotently, as a run would. No record is sent and no
topic made.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from cdc.errors import CdcError, SettingsError, SinkDenied
from cdc.finding import failure, ok, warning
from cdc.outbox import check_topic
from cdc.sinks.kafka_options import producer_arguments
from cdc.sinks.kafka_producer import Producer
from cdc.sinks.kafka_topics import MAX_MESSAGE_BYTES, TopicDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cdc.finding import Finding
    from cdc.sinks.kafka_options import KafkaOptions

_LIMIT_S: Final = 5.0
_DAY_MS: Final = 86_400_000

_RETENTION: Final = "retention.ms"
_CLEANUP: Final = "cleanup.policy"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_OLDEST: Final = "message.timestamp.before.max.ms"
_JUDGED: Final = (
    MAX_MESSAGE_BYTES,
    _RETENTION,
    _CLEANUP,
    _TIMESTAMP_TYPE,
    _OLDEST,
)


async def check_cluster(
    options: KafkaOptions, constant_topics: Sequence[str]
) -> list[Finding]:
    """Test cluster, credentials and topics; the way there is tried once, for 5 s."""
    quick = dataclasses.replace(
        options,
        start_timeout_s=_LIMIT_S,
        request_timeout_s=_LIMIT_S,
        create_topics=False,
        required_topics=(),
    )
    try:
        producer_arguments(quick)
    except SettingsError as exc:
        return [failure("kafka.settings", str(exc), exc.hint)]
    producer = Producer(quick)
    try:
        await producer.start()
    except CdcError as exc:
        is_denied = isinstance(exc, SinkDenied)
        name = "kafka.credentials" if is_denied else "kafka.broker"
        return [failure(name, str(exc), exc.hint)]
    findings = [
        ok("kafka.broker", f"Kafka at {options.bootstrap_servers} answers"),
        ok("kafka.credentials", "a producer is let in"),
    ]
    directory = TopicDirectory(producer.client, quick)
    try:
        for topic in constant_topics:
            findings += await _check_topic(directory, options, topic)
    finally:
        await producer.discard()
    return findings


async def _check_topic(
    directory: TopicDirectory, options: KafkaOptions, topic: str
) -> list[Finding]:
    wrong = check_topic(topic)
    if wrong is not None:
        shown = f"topic {topic[:260]!r} is not legal: {wrong}"
        return [failure("kafka.topic", shown, "change CDC_OUTBOX__TOPIC")]
    try:
        await directory.look_up([topic])
        known = directory.known(topic)
        configs = await directory.configs([topic], _JUDGED) if known else {}
    except CdcError as exc:
        return [failure("kafka.topic", str(exc), exc.hint)]
    if known is None:
        return [_missing(options, topic)]
    found = ok("kafka.topic", f"topic {topic} has {known.partitions} partitions")
    if topic not in configs:
        return [
            found,
            warning(
                "kafka.topic_limits",
                f"the settings of topic {topic} may not be read, so they are not"
                " checked",
                f"allow DescribeConfigs on topic {topic}, or compare"
                f" {MAX_MESSAGE_BYTES} and {_RETENTION} by hand",
            ),
        ]
    return [found, *_judged(topic, configs[topic], options)]


def _missing(options: KafkaOptions, topic: str) -> Finding:
    if options.create_topics:
        return ok("kafka.topic", f"topic {topic} will be made by the run")
    return failure(
        "kafka.topic",
        f"topic {topic} does not exist",
        f"kafka-topics.sh --bootstrap-server {options.bootstrap_servers} --create"
        f" --topic {topic}, or CDC_KAFKA__CREATE_TOPICS=true",
    )


def _judged(
    topic: str, configs: Mapping[str, str], options: KafkaOptions
) -> Iterator[Finding]:
    yield _size(topic, int(configs.get(MAX_MESSAGE_BYTES, 0)), options)
    yield _retention(topic, int(configs.get(_RETENTION, -1)))
    if "compact" in configs.get(_CLEANUP, ""):
        yield warning(
            "kafka.cleanup_policy",
            f"topic {topic} is compacted: of the events of a key only the last stays",
            f"set {_CLEANUP}=delete, unless that is wanted",
        )
    if configs.get(_TIMESTAMP_TYPE) == "LogAppendTime":
        yield warning(
            "kafka.timestamps",
            f"topic {topic} replaces commit times by the time of arrival",
            f"set {_TIMESTAMP_TYPE}=CreateTime, unless that is wanted",
        )
    elif 0 <= int(configs.get(_OLDEST, -1)) < _DAY_MS:
        yield warning(
            "kafka.timestamps",
            f"topic {topic} refuses records whose commit is older than"
            f" {int(configs[_OLDEST]) // 1000} s: after a longer outage they carry the"
            " time of publishing instead",
            f"raise {_OLDEST} above the longest outage you want to survive",
        )


def _size(topic: str, limit: int, options: KafkaOptions) -> Finding:
    name = "kafka.message_size"
    if 0 < limit < options.max_request_bytes:
        return warning(
            name,
            f"topic {topic} takes {limit} bytes, CDC_KAFKA__MAX_REQUEST_BYTES is"
            f" {options.max_request_bytes}: a record between the two stops the relay",
            f"raise {MAX_MESSAGE_BYTES} of the topic, or keep payloads below it",
        )
    return ok(name, f"topic {topic} takes {limit} bytes, as many as we send")


def _retention(topic: str, retention_ms: int) -> Finding:
    name = "kafka.retention"
    if 0 <= retention_ms < _DAY_MS:
        return warning(
            name,
            f"topic {topic} keeps records until {retention_ms // 1000} s after their"
            " commit: what the relay sends after a longer outage is deleted unread",
            f"raise {_RETENTION} above the longest outage you want to survive",
        )
    days = "for ever" if retention_ms < 0 else f"{retention_ms // _DAY_MS} days"
    return ok(name, f"topic {topic} keeps records {days}")
