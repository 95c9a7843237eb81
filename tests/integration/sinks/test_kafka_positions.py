"""Positions in a compacted topic: the last word of the highest term, whatever happens.

Records of a topic are looked at as a consumer sees them, compaction or not: what a read
returns may not depend on whether the broker has cleaned already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc.errors import RequirementMissing, SettingsError
from cdc.sinks import Kept
from cdc.sinks.kafka_positions import KafkaPositions
from tests.kafka_events import options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kafka_records import Topics

pytestmark = pytest.mark.kafka

COMPACTED = {"cleanup.policy": "compact"}


def document(number: int) -> bytes:
    return b'{"number": %d}' % number


@pytest.fixture
async def store(
    kafka: Any, topics: Topics, topic: str
) -> AsyncIterator[KafkaPositions]:
    """A store over a topic of its own that exists."""
    await topics.create(topic, configs=COMPACTED)
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as entered:
        yield entered


async def test_nothing_is_known_of_a_relay_that_has_written_nothing(
    store: KafkaPositions,
) -> None:
    assert await store.read("shop") is None


async def test_the_last_document_of_a_name_is_read_and_of_no_other(
    store: KafkaPositions,
) -> None:
    names = ["shop", "shop#2", "shop#0000000007", "#", "größe 😀", "a b/c"]
    for number, name in enumerate(names):
        await store.write(Kept(name, 7, document(0)))
        await store.write(Kept(name, 7, document(number)))

    seen = [await store.read(name) for name in names]

    assert seen == [Kept(name, 7, document(n)) for n, name in enumerate(names)]


async def test_a_relay_that_wakes_up_late_moves_nothing(
    kafka: Any, store: KafkaPositions, topic: str
) -> None:
    await store.write(Kept("shop", 4, document(40)))
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as later:
        await later.write(Kept("shop", 5, document(50)))

        await store.write(Kept("shop", 4, document(41)))

        assert await later.read("shop") == Kept("shop", 5, document(50))
        assert await store.read("shop") == Kept("shop", 5, document(50))


async def test_the_first_write_of_a_term_clears_the_older_ones_of_that_name_once(
    store: KafkaPositions, topics: Topics, topic: str
) -> None:
    for name, term in [("shop", 1), ("shop", 2), ("other", 1)]:
        await store.write(Kept(name, term, document(term)))
    await store.read("shop")

    for number in (30, 31):
        await store.write(Kept("shop", 3, document(number)))

    records = await topics.read_to_end(topic)
    assert [(record.key, record.value) for record in records] == [
        (b"shop#0000000001", document(1)),
        (b"shop#0000000002", document(2)),
        (b"shop#0000000001", None),
        (b"other#0000000001", document(1)),
        (b"shop#0000000003", document(30)),
        (b"shop#0000000002", None),
        (b"shop#0000000003", document(31)),
    ]
    assert await store.read("shop") == Kept("shop", 3, document(31))
    assert await store.read("other") == Kept("other", 1, document(1))


async def test_a_term_that_was_written_late_is_cleared_by_the_next_start(
    kafka: Any, store: KafkaPositions, topics: Topics, topic: str
) -> None:
    await store.write(Kept("shop", 5, document(5)))
    await store.write(Kept("shop", 4, document(4)))

    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as started:
        await started.write(Kept("shop", 6, document(6)))

    cleared = [r.key for r in await topics.read_to_end(topic) if r.value is None]
    assert cleared == [b"shop#0000000004", b"shop#0000000005"]


async def test_older_terms_beyond_one_batch_are_cleared_by_later_writes(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """The document itself is never left out for them."""
    await topics.create(topic, configs=COMPACTED)
    name = "n" * 5000
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        for term in range(100, 0, -1):
            await store.write(Kept(name, term, b"{}"))

        await store.write(Kept(name, 101, document(1)))
        first = await topics.read_to_end(topic)
        await store.write(Kept(name, 101, document(2)))
        second = await topics.read_to_end(topic)

        assert await store.read(name) == Kept(name, 101, document(2))
    assert 0 < sum(r.value is None for r in first) < 100
    assert sum(r.value is None for r in second) == 100


async def test_a_missing_topic_is_named_with_the_command_that_makes_it(
    kafka: Any, topics: Topics, topic: str
) -> None:
    """Reading and writing make no topic: one made in passing would not be compacted."""
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        for asked in (store.read("shop"), store.write(Kept("shop", 1, b"{}"))):
            with pytest.raises(RequirementMissing, match=topic) as missing:
                await asked
            assert "cdc init" in missing.value.hint

    assert await topics.names() == []


def test_a_topic_that_no_broker_would_make_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="CDC_KAFKA__STATE_TOPIC"):
        KafkaPositions(options("127.0.0.1:1"), "no such/topic")
