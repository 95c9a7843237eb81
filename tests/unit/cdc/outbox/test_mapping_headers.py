"""The headers of a record: ours, the mapped ones, the row's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import MappingError
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, Template
from cdc.wal.changes import Begin
from slots.lsn import Lsn
from tests.unit.cdc.outbox.rows import (
    BEGUN,
    OUTBOX,
    PLAIN,
    columns,
    make,
    streamed,
)

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
        begun = BEGUN._replace(commit_lsn=Lsn(lsn))
        binding = replace(PLAIN, epoch=epoch).bind(relation, OUTBOX)
        event = streamed(binding, row, begun=begun, ordinal=ordinal)
        return dict(event.headers)["cdc.position"] or b""

    assert (text(one) < text(other)) == (one < other)


def test_every_event_of_a_transaction_has_its_xid_time_and_own_index() -> None:
    relation, row = columns(
        id=b"1", aggregatetype=b"t", aggregateid=b"k", type=b"x", payload=b"{}"
    )
    binding = PLAIN.bind(relation, OUTBOX)
    other = Begin(xid=9, commit_lsn=Lsn(0xDEF), committed_at_us=5_000)

    events = [
        streamed(binding, row, begun=begun, ordinal=ordinal)
        for begun, ordinal in [(BEGUN, 0), (BEGUN, 1), (BEGUN, 255), (other, 0)]
    ]

    headers = [dict(event.headers) for event in events]
    assert [h["cdc.position"] for h in headers] == [
        b"0000-0000000000000ABC-00000000",
        b"0000-0000000000000ABC-00000001",
        b"0000-0000000000000ABC-000000FF",
        b"0000-0000000000000DEF-00000000",
    ]
    assert [h["cdc.xid"] for h in headers] == [b"742", b"742", b"742", b"9"]
    assert events[-1].timestamp_ms == 5


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("id", True),
        ("type", True),
        ("cdc.last", True),
        ("cdc.", True),
        (r"i\u0064", True),
        ("ID", False),
        ("ids", False),
        ("cdc", False),
        ("xcdc.last", False),
        ("traceparent", False),
    ],
)
def test_a_row_sets_any_header_but_ours_however_it_is_spelt(
    name: str,
    is_ours: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    mapping = replace(PLAIN, columns=Columns(headers=("headers",)))
    relation, row = columns(
        id=b"1",
        aggregatetype=b"t",
        aggregateid=b"k",
        type=b"x",
        payload=b"{}",
        headers=f'{{"{name}": "theirs"}}'.encode(),
    )
    binding = mapping.bind(relation, OUTBOX)

    event = streamed(binding, row)

    assert ((name, b"theirs") in event.headers) != is_ours
    assert b"theirs" not in dict(event.headers).values() or not is_ours
    assert binding.forged_headers == is_ours


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

    event = streamed(binding, row)

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
    assert make(mapping, headers=None).headers == make(PLAIN).headers
