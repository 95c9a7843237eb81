"""A row becomes an event: topic, key, value, headers, in bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ColumnMissing, MappingError
from cdc.outbox import DEFAULT_TOPIC, Columns, Event, Mapping, TableName, Template
from cdc.wal.changes import UNCHANGED, Begin, Column, ColumnType, Relation
from cdc.wal.transaction import Row
from slots.lsn import Lsn

if TYPE_CHECKING:
    from cdc.wal.changes import Value

OUTBOX = TableName("public", "outbox")
BEGUN = Begin(xid=742, commit_lsn=Lsn(0xABC), committed_at_us=1_700_000_000_123_456)
PLAIN = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))


def columns(**values: Value) -> tuple[Relation, tuple[Value, ...]]:
    relation = Relation(
        oid=1,
        schema="public",
        name="outbox",
        columns=tuple(
            Column(
                name.removesuffix("__bytea"),
                ColumnType.BYTEA if name.endswith("__bytea") else ColumnType.TEXT,
            )
            for name in values
        ),
    )
    return relation, tuple(values.values())


def make(mapping: Mapping, **values: Value) -> Event:
    return make_in_transaction(mapping, values, last=True)


def make_in_transaction(
    mapping: Mapping, values: dict[str, Value], *, last: bool
) -> Event:
    defaults: dict[str, Value] = {
        "id": b"id-1",
        "aggregatetype": b"order",
        "aggregateid": b"k",
        "type": b"Placed",
        "payload": b"{}",
    }
    relation, row = columns(**(defaults | values))
    binding = mapping.bind(relation, OUTBOX)
    return binding.event(Row(BEGUN, 0, last, relation, row))


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
        ("cdc.last", b"1"),
    ]


def test_only_the_last_event_says_so() -> None:
    assert "cdc.last" not in dict(make_in_transaction(PLAIN, {}, last=False).headers)


POSITIONS = st.tuples(
    st.integers(0, 0xFFFF), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
)


@given(POSITIONS, POSITIONS)
def test_comparing_position_texts_compares_positions(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    def text(position: tuple[int, int, int]) -> bytes:
        epoch, lsn, ordinal = position
        relation, row = columns(
            id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload=b""
        )
        begun = replace(BEGUN, commit_lsn=Lsn(lsn))
        binding = replace(PLAIN, epoch=epoch).bind(relation, OUTBOX)
        event = binding.event(Row(begun, ordinal, True, relation, row))  # noqa: FBT003
        return dict(event.headers)["cdc.position"] or b""

    assert (text(one) < text(other)) == (one < other)


def test_bytea_becomes_its_raw_bytes_and_everything_else_stays_text() -> None:
    relation, row = columns(
        id=b"1",
        aggregatetype=b"t",
        aggregateid__bytea=b"\\x0001",
        type=b"x",
        payload__bytea=b"\\x00ff5c78",
    )
    event = PLAIN.bind(relation, OUTBOX).event(
        Row(BEGUN, 0, True, relation, row)  # noqa: FBT003
    )

    assert event.value == b"\x00\xff\x5c\x78"
    assert event.key == b"\x00\x01"


@pytest.mark.parametrize("text", [b"00ff", b"\\x0", b"\\xzz", b"\\x00 ff", b""])
def test_bytea_that_is_no_hex_is_refused_and_not_published(text: bytes) -> None:
    relation, row = columns(
        id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload__bytea=text
    )
    binding = PLAIN.bind(relation, OUTBOX)

    with pytest.raises(MappingError, match=r"event 1 of public.outbox.*bytea"):
        binding.event(Row(BEGUN, 0, True, relation, row))  # noqa: FBT003


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

    event = both.bind(relation, OUTBOX).event(
        Row(BEGUN, 0, True, relation, row)  # noqa: FBT003
    )

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


def test_mapped_headers_come_before_the_rows_own_and_nobody_forges_ours() -> None:
    mapping = Mapping(
        columns=Columns(headers=("headers",)),
        topic=Template.parse(DEFAULT_TOPIC),
        record_headers=(
            ("eventType", Template.parse("{type}")),
            ("ce_source", Template.parse("shop/{table}")),
            ("note", Template.parse("{note}")),
            ("mixed", Template.parse("<{note}>")),
        ),
    )
    own = b'{"traceparent": "00-1", "id": "forged", "type": 1, "cdc.x": "y", "n": 1.0}'
    relation, row = columns(
        id=b"1",
        aggregatetype=b"t",
        aggregateid=b"k",
        type=b"Placed",
        payload=b"",
        headers=own,
        note=None,
    )
    binding = mapping.bind(relation, OUTBOX)

    event = binding.event(Row(BEGUN, 0, True, relation, row))  # noqa: FBT003

    assert event.headers[:8] == [
        ("id", b"1"),
        ("type", b"Placed"),
        ("eventType", b"Placed"),
        ("ce_source", b"shop/outbox"),
        ("note", None),
        ("mixed", b"<>"),
        ("traceparent", b"00-1"),
        ("n", b"1.0"),
    ]
    assert binding.forged_headers == 3
    assert mapping.required_columns()[-1] == ("note",)


def test_mapped_headers_need_no_headers_column() -> None:
    mapping = replace(PLAIN, record_headers=(("kind", Template.parse("{type}")),))

    assert ("kind", b"Placed") in make(mapping).headers


def test_a_headers_column_that_is_no_object_is_refused_with_the_id() -> None:
    mapping = replace(PLAIN, columns=Columns(headers=("headers",)))

    with pytest.raises(MappingError, match=r"event id-1.*headers column"):
        make(mapping, headers=b"[1]")
    assert len(make(mapping, headers=None).headers) == 5


def test_events_without_a_key_are_counted() -> None:
    relation, row = columns(
        id=b"1", aggregatetype=b"t", aggregateid=None, type=b"x", payload=b"{}"
    )
    binding = PLAIN.bind(relation, OUTBOX)
    for _ in range(2):
        binding.event(Row(BEGUN, 0, True, relation, row))  # noqa: FBT003

    assert binding.keyless == 2


def test_the_size_is_never_less_than_what_a_record_holds() -> None:
    mapping = replace(PLAIN, columns=Columns(headers=("headers",)))
    event = make(mapping, payload=b"x" * 1000, headers='{"é": "ü"}'.encode())

    held = len(event.key or b"") + len(event.value or b"")
    for name, value in event.headers:
        held += len(name.encode()) + len(value or b"") + 2
    assert event.size_bytes >= held


def test_a_million_topics_do_not_stay_in_memory() -> None:
    relation, _ = columns(
        id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload=b"{}"
    )
    binding = PLAIN.bind(relation, OUTBOX)
    for number in range(5000):
        row: tuple[Value, ...] = (b"1", b"t%d" % number, b"k", b"x", b"{}")
        event = binding.event(Row(BEGUN, 0, True, relation, row))  # noqa: FBT003
        assert event.topic == f"outbox.event.t{number}"

    assert len(binding._topics) <= 4096
