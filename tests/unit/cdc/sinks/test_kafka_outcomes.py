from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import errors as kafka_errors

from cdc.errors import RecordRefused, SinkDenied, SinkUnavailable, SinkUncertain
from cdc.sinks.kafka_batches import Shipment
from cdc.sinks.kafka_outcomes import Lessons, named

if TYPE_CHECKING:
    from cdc.errors import CdcError

NOW_MS = 1_800_000_000_000


async def shipment(**changes: Any) -> Shipment:
    settings: dict[str, Any] = {
        "topic": "orders",
        "partition": 2,
        "first_id": "id-1",
        "count": 8,
        "size_bytes": 1000,
        "limit_bytes": 0,
        "times_ms": (NOW_MS - 4000, NOW_MS - 1000),
        "outcome": asyncio.get_running_loop().create_future(),
        "deadline": 0.0,
    }
    return Shipment(**settings | changes)


@pytest.mark.parametrize(
    ("exc", "error"),
    [
        (kafka_errors.TopicAuthorizationFailedError("orders"), SinkDenied),
        (kafka_errors.SaslAuthenticationFailed("no"), SinkDenied),
        (ssl.SSLCertVerificationError(1, "self-signed"), SinkDenied),
        (kafka_errors.KafkaConnectionError("gone"), SinkUnavailable),
        (ConnectionRefusedError(111, "refused"), SinkUnavailable),
        (TimeoutError(), SinkUnavailable),
        (kafka_errors.OutOfOrderSequenceNumber(), SinkUncertain),
        (kafka_errors.ProducerFenced(), SinkUncertain),
        (ValueError("two\nlines"), SinkUncertain),
    ],
)
def test_errors_of_the_library_become_ours_in_one_line(
    exc: Exception, error: type[CdcError]
) -> None:
    ours = named(exc, "here")

    assert type(ours) is error
    assert str(ours).startswith("here: ")
    assert "\n" not in str(ours)


def test_an_error_of_ours_stays_what_it_is() -> None:
    error = SinkDenied("no")

    assert named(error, "elsewhere") is error


async def test_limits_learnt_only_fall_and_end_at_one_record() -> None:
    lessons = Lessons()
    limits = []
    size = 1 << 18
    while size > 1:
        await _refused(lessons, size)
        limits.append(size := lessons.batch_limit("orders", 1 << 18))

    assert limits == sorted(limits, reverse=True)
    assert len(set(limits)) == len(limits) <= 18
    assert lessons.batch_limit("others", 1 << 18, 0) == 1 << 18


async def _refused(lessons: Lessons, size: int) -> None:
    ship = await shipment(size_bytes=size)
    error = lessons.verdict(ship, kafka_errors.MessageSizeTooLargeError(), NOW_MS)
    assert type(error) is SinkUncertain


@pytest.mark.parametrize(
    "exc",
    [kafka_errors.MessageSizeTooLargeError(), kafka_errors.RecordListTooLargeError()],
)
async def test_one_record_alone_is_refused_with_id_size_and_known_limit(
    exc: Exception,
) -> None:
    ship = await shipment(count=1, limit_bytes=700)

    error = Lessons().verdict(ship, exc, NOW_MS)

    assert type(error) is RecordRefused
    for part in ("id-1", "orders", "1000 bytes", "700"):
        assert part in str(error)


async def test_refused_timestamps_are_told_apart_by_distance_ever_more_strictly() -> (
    None
):
    lessons = Lessons()
    exc = kafka_errors.InvalidTimestampError()
    limits = []
    for _ in range(15):
        error = lessons.verdict(await shipment(), exc, NOW_MS)
        assert type(error) is SinkUncertain
        limits.append(lessons.clock_limits["orders"])

    assert limits[0] == 500
    assert limits[:9] == sorted(set(limits), reverse=True)[:9]
    assert limits[-1] == 0
