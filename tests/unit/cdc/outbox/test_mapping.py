"""A row becomes an event: topic, key, value, partition, in bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ColumnMissing, MappingError
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, Template
from cdc.wal.changes import UNCHANGED, Column, ColumnType, Relation
from tests.unit.cdc.outbox.rows import (
    OUTBOX,
    PLAIN,
    bytes_of,
    columns,
    make,
    streamed,
)

if TYPE_CHECKING:
    from cdc.wal.changes import Value


def test_the_default_record() -> None:
    event = make(PLAIN, payload=b'{"b": null, "id": 1}')

    assert event.topic == "outbox.event.order"
    assert (event.key, event.partition_key) == (b"k", b"k")
    assert event.value == b'{"b": null, "id": 1}'
    assert event.timestamp_ms == 1_700_000_000_123
    assert event.headers == [
        ("id", b"id-1"),
        ("type", b"Placed"),
        ("cdc.position", b"0000-0000000000000ABC-00000000"),
        ("cdc.xid", b"742"),
    ]


COLUMN_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)


BYTES = st.binary(max_size=60)


@given(
    names=st.lists(COLUMN_NAMES, min_size=8, max_size=8, unique=True),
    row=st.tuples(BYTES, BYTES, BYTES | st.none(), BYTES, BYTES, BYTES, BYTES, BYTES),
    order=st.permutations(range(8)),
    kinds=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_columns_are_found_by_name_in_any_order_and_pass_byte_for_byte(
    names: list[str],
    row: tuple[Value, ...],
    order: list[int],
    kinds: tuple[bool, bool, bool],
) -> None:
    roles = Columns(
        id=("absent", names[0]),
        aggregate_type=(),
        key=(names[1], names[7]),
        type=(names[2],),
        payload=(names[3],),
        partition_key=(names[4],),
    )
    mapping = Mapping(columns=roles, topic=Template.parse("orders"))
    bytea = {n for n, is_bytea in zip((1, 3, 4), kinds, strict=True) if is_bytea}
    relation = Relation(
        oid=1,
        schema="public",
        name="outbox",
        columns=tuple(
            Column(names[n], ColumnType.BYTEA if n in bytea else ColumnType.TEXT)
            for n in order
        ),
    )
    given_row = tuple(
        b"\\x" + bytes_of(row[n]).hex().encode() if n in bytea else row[n]
        for n in order
    )

    event = streamed(mapping.bind(relation, OUTBOX), given_row)

    assert event.headers[:2] == [("id", row[0]), ("type", row[2])]
    assert (event.key, event.value, event.partition_key) == (row[1], row[3], row[4])
    assert event.topic == "orders"


@pytest.mark.parametrize(
    "identifier",
    [
        b"23a2e0f8-2d69-45d3-8a89-9f7d6102abac",
        b"9223372036854775807",
        "bestellung-ä".encode(),
    ],
)
def test_an_id_of_any_type_is_its_text(identifier: bytes) -> None:
    event = make(PLAIN, id=identifier)

    assert event.event_id == identifier.decode()
    assert event.headers[0] == ("id", identifier)


def test_a_partition_key_may_be_null_or_empty_while_the_key_is_not() -> None:
    mapping = replace(PLAIN, columns=Columns(partition_key=("tenant",)))

    assert make(mapping, tenant=None).partition_key is None
    assert make(mapping, tenant=b"").partition_key == b""


def test_bytea_becomes_its_raw_bytes_and_everything_else_stays_text() -> None:
    relation, row = columns(
        id=b"1",
        aggregatetype=b"t",
        aggregateid__bytea=b"\\x0001",
        type=b"x",
        payload__bytea=b"\\x00ff5c78",
    )
    event = streamed(PLAIN.bind(relation, OUTBOX), row)

    assert event.value == b"\x00\xff\x5c\x78"
    assert event.key == b"\x00\x01"


@pytest.mark.parametrize("text", [b"00ff", b"\\x0", b"\\xzz", b"\\x00 ff", b""])
def test_bytea_that_is_no_hex_is_refused_and_not_published(text: bytes) -> None:
    relation, row = columns(
        id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload__bytea=text
    )
    binding = PLAIN.bind(relation, OUTBOX)

    with pytest.raises(MappingError, match=r"event 1 of public.outbox.*bytea"):
        streamed(binding, row)


def test_null_is_no_key_and_a_null_value() -> None:
    assert make(PLAIN, payload=None).value is None
    keyless = make(PLAIN, aggregateid=None)
    assert (keyless.key, keyless.partition_key) == (None, None)
    assert make(PLAIN, aggregateid=b"").key == b""
    assert make(PLAIN, type=None).headers[1] == ("type", None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"id": None}, "its id is NULL"),
        ({"aggregateid": None, "payload": None}, "neither key nor payload"),
        ({"aggregatetype": None}, "is NULL"),
        ({"aggregatetype": b"bad topic/!"}, "not legal"),
        ({"payload": UNCHANGED}, "without one of its values"),
        ({"aggregatetype": UNCHANGED}, "without one of its values"),
    ],
)
def test_a_row_that_cannot_be_an_event_is_named(
    values: dict[str, Value], words: str
) -> None:
    with pytest.raises(MappingError, match=words) as raised:
        make(PLAIN, **values)

    assert "public.outbox" in str(raised.value)
    assert "742" in str(raised.value)


def test_a_mapped_column_that_is_missing_is_named_with_what_there_is() -> None:
    relation, _ = columns(id=b"", aggregatetype=b"", agg=b"", type=b"", payload=b"")

    with pytest.raises(ColumnMissing, match=r"'aggregateid'.*\(it has id, .*agg, "):
        PLAIN.bind(relation, OUTBOX)


def test_a_renamed_column_is_found_under_either_name() -> None:
    both = Mapping(
        columns=Columns(key=("aggregateid", "agg")), topic=Template.parse("t")
    )
    relation, row = columns(id=b"1", agg=b"new", type=b"x", payload=b"")

    event = streamed(both.bind(relation, OUTBOX), row)

    assert event.key == b"new"
    assert make(both).key == b"k"


def test_the_default_topic_follows_the_mapped_column_and_any_other_real_names() -> None:
    own = Columns(aggregate_type=("kind",))

    by_default = Mapping(columns=own, topic=Template.parse(DEFAULT_TOPIC))
    by_name = Mapping(columns=own, topic=Template.parse("{schema}.{table}.{kind}"))

    assert make(by_default, kind=b"invoice").topic == "outbox.event.invoice"
    assert make(by_name, kind=b"invoice").topic == "public.outbox.invoice"
    assert ("kind",) in by_default.required_columns()
    assert ("aggregatetype",) not in by_default.required_columns()


def test_roles_that_are_not_used_leave_no_trace() -> None:
    bare = Mapping(
        columns=Columns(aggregate_type=(), key=(), type=()),
        topic=Template.parse("constant"),
    )

    event = make(bare)

    assert event.key is None
    assert [name for name, _ in event.headers][:2] == ["id", "cdc.position"]
    assert bare.required_columns() == (("id",), ("payload",))


def test_a_partition_key_column_decides_and_the_key_stays() -> None:
    mapping = replace(PLAIN, columns=Columns(partition_key=("tenant",)))

    event = make(mapping, tenant=b"t-7")

    assert (event.key, event.partition_key) == (b"k", b"t-7")


def test_events_without_a_key_are_counted() -> None:
    relation, row = columns(
        id=b"1", aggregatetype=b"t", aggregateid=None, type=b"x", payload=b"{}"
    )
    binding = PLAIN.bind(relation, OUTBOX)
    for _ in range(2):
        streamed(binding, row)

    assert binding.keyless == 2


SIZES = st.sampled_from([0, 1, 63, 64, 100, 8191, 8192, 20_000])


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES, SIZES),
    headers=st.dictionaries(
        st.text(max_size=4).map(lambda text: "é" + text) | st.just("ü" * 70),
        SIZES,
        max_size=8,
    ),
)
def test_the_size_is_never_less_than_the_record_that_kafka_makes_of_it(
    sizes: tuple[int, int, int, int], headers: dict[str, int]
) -> None:
    identifier, type_name, key, value = (b"x" * size for size in sizes)
    mapping = replace(PLAIN, columns=Columns(headers=("headers",)))
    pairs = {name: "y" * size for name, size in headers.items()}

    event = make(
        mapping,
        id=identifier,
        type=type_name,
        aggregateid=key,
        payload=value,
        headers=json.dumps(pairs).encode(),
    )

    batch = DefaultRecordBatchBuilder(2, 0, 1, -1, -1, -1, 1 << 30)
    batch.append(0, event.timestamp_ms, event.key, event.value, event.headers)
    assert len(batch.build()) <= event.size_bytes <= len(batch.build()) + 300


def test_a_million_topics_do_not_stay_in_memory() -> None:
    relation, _ = columns(
        id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload=b"{}"
    )
    binding = PLAIN.bind(relation, OUTBOX)
    for number in range(5000):
        row: tuple[Value, ...] = (b"1", b"t%d" % number, b"k", b"x", b"{}")
        event = streamed(binding, row)
        assert event.topic == f"outbox.event.t{number}"

    assert len(binding._topics) <= 4096


def test_a_topic_of_two_columns_is_found_again_by_both() -> None:
    """One column's value alone is no topic, even where it is the row's last."""
    relation, _ = columns(
        id=b"1", aggregateid=b"k", type=b"x", payload=b"{}", region=b"eu"
    )
    mapping = replace(PLAIN, topic=Template.parse("{type}.{region}"))
    binding = mapping.bind(relation, OUTBOX)
    topics = [
        streamed(binding, (b"1", b"k", kind, b"{}", region)).topic
        for kind, region in [(b"a", b"eu"), (b"a", b"us"), (b"b", b"eu"), (b"a", b"eu")]
    ]
    assert topics == ["a.eu", "a.us", "b.eu", "a.eu"]
