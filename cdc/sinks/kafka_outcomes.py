"""What a broker's answer means, and what is remembered of it for the next attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokafka import errors as kafka_errors

from cdc.errors import (
    CdcError,
    RecordRefused,
    SinkDenied,
    SinkUnavailable,
    SinkUncertain,
)

if TYPE_CHECKING:
    from cdc.sinks.kafka_batches import Records

_TOO_LARGE: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)
_DENIED: Final = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
_AWAY: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.NoBrokersAvailable,
    OSError,
    TimeoutError,
)


@dataclass(slots=True)
class Lessons:
    """What refusals have taught; lives as long as the sink, across its sessions.

    Attributes:
        batch_limits: by topic, the most bytes a batch of several records may have.
        refused_times: by topic, spans of timestamps that the broker does not take.

    """

    batch_limits: dict[str, int] = field(default_factory=dict)
    refused_times: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def takes_time(self, topic: str, timestamp_ms: int) -> bool:
        """Tell whether the broker is expected to take a timestamp."""
        spans = self.refused_times.get(topic, ())
        return not any(low <= timestamp_ms <= high for low, high in spans)

    def verdict(self, records: Records, exc: Exception) -> CdcError:
        """Learn from what ended a batch, and name it."""
        where = f"topic {records.topic}, partition {records.partition}"
        if isinstance(exc, _TOO_LARGE):
            return self._too_large(records, where)
        if isinstance(exc, kafka_errors.InvalidTimestampError):
            self.refused_times.setdefault(records.topic, []).append(
                records.timestamps_ms
            )
            return SinkUncertain(
                f"{where}: the broker refuses timestamps around event"
                f" {records.first_id}; they are published with the time of publishing"
            )
        if isinstance(exc, TimeoutError):
            return SinkUncertain(
                f"{where}: no answer in time for {records.count} events from"
                f" {records.first_id} on; the outcome is unknown"
            )
        return named(exc, where)

    def _too_large(self, records: Records, where: str) -> CdcError:
        if records.count > 1:
            self.batch_limits[records.topic] = records.largest_bytes
            return SinkUncertain(
                f"{where}: a batch of {records.count} events is too large for the"
                f" broker; from now on no more than {records.largest_bytes} bytes"
            )
        return RecordRefused(
            f"event {records.first_id} is too large for {where}:"
            f" {records.largest_bytes} bytes, more than the broker takes",
            hint="raise max.message.bytes of the topic; nothing behind it is published"
            " until then",
        )


def named(exc: BaseException, where: str) -> CdcError:
    """Return our error for one of the client library's."""
    if isinstance(exc, CdcError):
        return exc
    text = f"{where}: {_line(exc)}"
    if isinstance(exc, _DENIED):
        return SinkDenied(text)
    if isinstance(exc, _AWAY):
        return SinkUnavailable(text)
    return SinkUncertain(text)


def _line(exc: BaseException) -> str:
    return " ".join(f"{type(exc).__name__}: {exc}".split())
