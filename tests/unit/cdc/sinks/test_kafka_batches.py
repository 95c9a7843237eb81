from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import RecordRefused
from cdc.outbox import Event
from cdc.sinks.kafka_batches import Packer, spread
from cdc.sinks.kafka_partition import KeyHashes
from cdc.sinks.kafka_record_batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.sinks.kafka_batches import Filling

LIMIT = 500
NOW_MS = 1_800_000_000_000


def taken(filling: Filling) -> list[tuple[bytes | None, int]]:
    """Read values and timestamps out of the batch as it would be sent."""
    batch = MemoryRecords(bytes(filling.builder._build())).next_batch()
    assert batch is not None
    records = [(record.value, record.timestamp) for record in batch]
    assert filling.count == len(records) == filling.builder.record_count()
    assert batch.next_offset == len(records)
    return records


def event(
    key: bytes | None, value: bytes | None, *, topic: str = "t", ms: int = NOW_MS
) -> Event:
    return Event(f"id-{value!r}", topic, key, value, [], ms, key, 100)


def packer(**changes: Any) -> Packer:
    settings: dict[str, Any] = {
        "topic": "t",
        "new_builder": lambda: RecordBatch(LIMIT, 0),
        "hashes": KeyHashes(),
        "partitions": 3,
        "unkeyed": itertools.cycle(range(3)),
        "max_record_bytes": 1000,
        "clock_limit_ms": None,
        "now_ms": NOW_MS,
    }
    return Packer(**settings | changes)


def values(fillings: list[Filling]) -> list[bytes | None]:
    return [value for filling in fillings for value, _ in taken(filling)]


def collect(fillings: Iterator[Filling], into: list[Filling]) -> None:
    for filling in fillings:
        into.append(filling)  # noqa: PERF402 - kept when the iterator raises


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"", None]), st.binary(max_size=600)
        )
    )
)
def test_every_event_is_packed_once_in_the_order_of_its_key(
    pairs: list[tuple[bytes | None, bytes]],
) -> None:
    events = [event(key, value) for key, value in pairs]

    fillings = list(packer().pack(events))

    assert sorted(map(str, values(fillings))) == sorted(str(v) for _, v in pairs)
    hashes = KeyHashes()
    for key in (b"a", b"b", b"c", b""):
        partition = hashes[key] % 3
        mine = [value for k, value in pairs if k == key]
        there = [f for f in fillings if f.partition == partition]
        rest = iter(values(there))
        assert all(value in rest for value in mine)
    for filling in fillings:
        builder = filling.builder
        assert builder.size() <= LIMIT or builder.record_count() == 1


def test_a_large_record_is_refused_after_everything_before_it() -> None:
    events = [
        event(b"a", b"1"),
        event(b"b", b"2"),
        event(b"a", b"x" * 2000),
        event(b"a", b"3"),
    ]
    packed: list[Filling] = []

    with pytest.raises(RecordRefused, match="is 1000") as refusal:
        collect(packer().pack(events), packed)

    assert set(values(packed)) == {b"1", b"2"}
    assert events[2].event_id in str(refusal.value)


def test_unkeyed_events_stay_together_until_a_batch_is_full() -> None:
    events = [event(None, b"%03d" % number + b"x" * 97) for number in range(13)]

    fillings = list(packer().pack(events))

    assert [filling.partition for filling in fillings] == [0, 1, 2, 0]
    assert values(fillings) == [one.value for one in events]


def test_only_timestamps_beyond_the_limit_are_replaced_and_they_are_counted() -> None:
    own = packer(clock_limit_ms=1000)
    times = [NOW_MS - 5000, NOW_MS - 500, NOW_MS + 500, NOW_MS + 5000]

    (filling,) = own.pack([event(b"a", b"%d" % ms, ms=ms) for ms in times])

    assert [ms for _, ms in taken(filling)] == [
        NOW_MS,
        NOW_MS - 500,
        NOW_MS + 500,
        NOW_MS,
    ]
    assert own.timestamps_replaced == 2


def test_topics_are_grouped_and_each_keeps_its_order() -> None:
    pairs = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4")]

    groups = spread([event(b"k", value, topic=topic) for topic, value in pairs])

    assert {topic: [e.value for e in group] for topic, group in groups.items()} == {
        "b": [b"1", b"3"],
        "a": [b"2", b"4"],
    }


def test_equal_names_are_one_topic_even_as_different_objects() -> None:
    names = ["topic", b"topic".decode()]

    groups = spread([event(b"k", b"1", topic=name) for name in names])

    assert [len(group) for group in groups.values()] == [2]
