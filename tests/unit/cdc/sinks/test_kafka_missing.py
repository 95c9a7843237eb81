from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import SinkUncertain
from cdc.outbox import Event
from cdc.sinks.kafka_batches import KafkaDelivery
from cdc.sinks.kafka_missing import MissingTopics, pauses_s


def events(count: int) -> list[Event]:
    return [Event(str(n), "t", b"k", b"v", [], 0, b"k", 100) for n in range(count)]


def delivery() -> KafkaDelivery:
    overseer: Any = None
    return KafkaDelivery(overseer)


async def test_events_leave_in_order_and_the_topic_with_the_last() -> None:
    missing = MissingTopics("host:1")
    first, second = delivery(), delivery()
    missing.hold("t", events(1), first)
    missing.hold("t", events(2), second)

    for expected in (first, second):
        held = missing.first("t")
        assert held is not None
        assert held.delivery is expected
        assert "t" in missing
        missing.release("t", held)
        await expected

    assert missing.first("t") is None
    assert "t" not in missing


async def test_what_waits_is_counted_in_one_line_a_topic() -> None:
    missing = MissingTopics("host:1")
    missing.hold("a", events(1), delivery())
    missing.hold("b", events(2), delivery())
    missing.hold("a", events(3), delivery())

    assert missing.lines({"b": "cannot be made: policy"}) == [
        "topic 'a' does not exist on Kafka at host:1: create it, 4 events wait",
        "topic 'b' cannot be made: policy, 2 events wait",
    ]


async def test_giving_up_fails_every_delivery_and_keeps_nothing() -> None:
    missing = MissingTopics("host:1")
    waiting = delivery()
    missing.hold("a", events(1), waiting)
    held = missing.first("a")
    assert held is not None

    missing.fail(SinkUncertain("left"))
    missing.release("a", held)

    assert len(missing) == 0
    with pytest.raises(SinkUncertain, match="left"):
        await waiting


def test_pauses_double_up_to_five_seconds() -> None:
    pauses = pauses_s()

    assert [round(next(pauses), 1) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
