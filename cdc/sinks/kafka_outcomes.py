"""What a broker's answer means, and what is remembered of it for the next attempt."""

from __future__ import annotations

import ssl
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
    from cdc.sinks.kafka_batches import Shipment

_TOO_LARGE: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)
_DENIED: Final = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.AuthenticationMethodNotSupported,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.SecurityDisabled,
    # An OSError as well, so it is asked for before those.
    ssl.SSLError,
)
_AWAY: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.NoBrokersAvailable,
    OSError,
    TimeoutError,
)
_ANY_SIZE: Final = 1 << 62


@dataclass(slots=True)
class Lessons:
    """What refusals have taught; lives as long as the sink, across its sessions.

    Attributes:
        batch_limits: by topic, the most bytes a batch of several records may have.
            Only ever lowered, so resending ends with records sent one by one.
        clock_limits: by topic, how far in milliseconds a timestamp may be from now
            before the time of publishing takes its place.

    """

    batch_limits: dict[str, int] = field(default_factory=dict)
    clock_limits: dict[str, int] = field(default_factory=dict)

    def batch_limit(self, topic: str, *limits: int) -> int:
        """Return the most bytes a batch may have; a limit of 0 is not known."""
        learnt = self.batch_limits.get(topic, 0)
        return min(limit for limit in (learnt, *limits) if limit)

    def verdict(self, shipment: Shipment, exc: BaseException, now_ms: int) -> CdcError:
        """Learn from what ended a shipment, and name it."""
        if isinstance(exc, _TOO_LARGE):
            return self._too_large(shipment)
        if isinstance(exc, kafka_errors.InvalidTimestampError):
            return self._bad_timestamp(shipment, now_ms)
        return named(exc, shipment.where)

    def _too_large(self, shipment: Shipment) -> CdcError:
        if shipment.count > 1:
            limit = min(
                shipment.size_bytes,
                self.batch_limits.get(shipment.topic, shipment.size_bytes),
            )
            self.batch_limits[shipment.topic] = limit = max(1, limit // 2)
            return SinkUncertain(
                f"{shipment.where}: a batch of {shipment.count} events,"
                f" {shipment.size_bytes} bytes, is too large for the broker",
                hint=f"none needed: they are sent again, {limit} bytes at a time;"
                " max.message.bytes of the topic is the limit",
            )
        known = shipment.limit_bytes
        limit_text = f"max.message.bytes is {known}" if known else "the broker's limit"
        return too_large(
            shipment.first_id, shipment.topic, shipment.size_bytes, limit_text
        )

    def _bad_timestamp(self, shipment: Shipment, now_ms: int) -> CdcError:
        # Which record it was the answer does not say. Half the smaller distance covers
        # the batch; whatever it leaves out is halved again, down to every record.
        distance = min(abs(now_ms - time_ms) for time_ms in shipment.times_ms)
        before = self.clock_limits.get(shipment.topic, _ANY_SIZE)
        self.clock_limits[shipment.topic] = min(before, distance) // 2
        return SinkUncertain(
            f"{shipment.where}: the broker refuses the commit time of an event among"
            f" the {shipment.count} from {shipment.first_id} on",
            hint="none needed: they are sent again with the time of publishing; to keep"
            " commit times raise message.timestamp.before.max.ms of the topic",
        )


def too_large(event_id: str, topic: str, size: int, limit: str) -> RecordRefused:
    """Return the refusal of one record."""
    return RecordRefused(
        f"event {event_id} is too large for topic {topic}: {size} bytes, {limit}",
        hint="raise CDC_KAFKA__MAX_REQUEST_BYTES here, and max.message.bytes of the"
        " topic; nothing behind it is published until then",
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
    """Say what an exception is, in one line."""
    text = " ".join(str(exc).split())
    name = type(exc).__name__
    if not text:
        return name
    return text if name in text else f"{name}: {text}"
