"""pgoutput: what was encoded is decoded, and anything else is a DecodeError."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wal.changes import (
    UNCHANGED,
    Begin,
    ColumnType,
    Commit,
    Insert,
    Relation,
    SkipKind,
    Skipped,
)
from cdc.wal.frames import POSTGRES_EPOCH_US
from cdc.wal.pgoutput import Decoder, options
from slots.lsn import Lsn
from tests.unit.cdc.wal import messages

LSNS = st.integers(0, 2**64 - 1)


def prepared() -> Decoder:
    decoder = Decoder()
    decoder.decode(messages.relation(5, "public", "outbox", [("id", 25), ("raw", 17)]))
    return decoder


@given(
    oid=st.integers(0, 2**32 - 1),
    names=st.tuples(messages.IDENTIFIERS, messages.IDENTIFIERS),
    columns=st.lists(
        st.tuples(messages.IDENTIFIERS, st.sampled_from([17, 25, 3802])), max_size=8
    ),
    data=st.data(),
)
def test_relations_and_rows_come_back_as_they_were_sent(
    oid: int,
    names: tuple[str, str],
    columns: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    row = data.draw(
        st.lists(messages.CELLS, min_size=len(columns), max_size=len(columns))
    )
    decoder = Decoder()

    relation = decoder.decode(messages.relation(oid, *names, columns))
    change = decoder.decode(messages.insert(oid, row))

    assert isinstance(relation, Relation)
    assert (relation.oid, relation.schema, relation.name) == (oid, *names)
    assert [column.name for column in relation.columns] == [c[0] for c in columns]
    assert [column.type is ColumnType.BYTEA for column in relation.columns] == [
        type_oid == 17 for _, type_oid in columns
    ]
    assert isinstance(change, Insert)
    assert change.relation is relation
    assert change.values == [None if value is None else value.encode() for value in row]


@given(LSNS, LSNS, st.integers(0, 2**32 - 1), st.integers(-(2**62), 2**62))
def test_positions_xid_and_commit_time_come_back(
    commit_lsn: int, end_lsn: int, xid: int, at: int
) -> None:
    decoder = Decoder()

    assert decoder.decode(
        messages.begin(commit_lsn=commit_lsn, committed_at=at, xid=xid)
    ) == Begin(
        xid=xid, commit_lsn=Lsn(commit_lsn), committed_at_us=at + POSTGRES_EPOCH_US
    )
    assert decoder.decode(
        messages.commit(commit_lsn=commit_lsn, end_lsn=end_lsn)
    ) == Commit(commit_lsn=Lsn(commit_lsn), end_lsn=Lsn(end_lsn))


def test_a_namespace_left_empty_is_pg_catalog() -> None:
    relation = Decoder().decode(messages.relation(5, "", "pg_class", []))

    assert isinstance(relation, Relation)
    assert relation.schema == "pg_catalog"


def test_an_unchanged_value_is_not_null() -> None:
    row = struct.pack("!cIcH", b"I", 5, b"N", 2) + b"un"

    change = prepared().decode(row)

    assert isinstance(change, Insert)
    assert change.values == [UNCHANGED, None]


def test_a_relation_described_anew_replaces_the_old_layout() -> None:
    decoder = prepared()
    decoder.decode(messages.relation(5, "public", "outbox", [("id", 25)]))

    change = decoder.decode(messages.insert(5, ["x"]))

    assert isinstance(change, Insert)
    assert [column.name for column in change.relation.columns] == ["id"]


def test_domains_over_bytea_are_bytea_when_told_so() -> None:
    decoder = Decoder(frozenset({17, 16400}))

    relation = decoder.decode(messages.relation(5, "s", "t", [("raw", 16400)]))

    assert isinstance(relation, Relation)
    assert relation.columns[0].type is ColumnType.BYTEA


@pytest.mark.parametrize(
    ("payload", "kind", "has_relation"),
    [
        (struct.pack("!cI", b"U", 5) + b"N...", SkipKind.UPDATE, True),
        (struct.pack("!cI", b"D", 5) + b"K...", SkipKind.DELETE, True),
        (struct.pack("!cIBII", b"T", 2, 0, 5, 6), SkipKind.TRUNCATE, False),
        (b"O\0\0\0\0\0\0\0\0name\0", SkipKind.ORIGIN, False),
        (b"Y\0\0\0\x05public\0kind\0", SkipKind.TYPE, False),
        (b"M\x01\0\0\0\0\0\0\0\0prefix\0\0\0\0\x02hi", SkipKind.MESSAGE, False),
    ],
)
def test_messages_of_no_use_are_named_and_skipped(
    payload: bytes,
    kind: SkipKind,
    has_relation: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    change = prepared().decode(payload)

    assert isinstance(change, Skipped)
    assert change.kind is kind
    assert (change.relation is not None) == has_relation


GOOD_ROW = messages.insert(5, ["id", None])


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "empty message at offset 0"),
        (b"S\0\0\0\x01\x01", "was not asked for"),
        (b"\xff", "0xff is unknown"),
        (GOOD_ROW[:4], "cut off"),
        (GOOD_ROW[:-1], "cut off"),
        (GOOD_ROW + b"n", "its lengths say"),
        (messages.insert(6, ["x", "y"]), "relation 6 was never described"),
        (messages.insert(5, ["x"]), "1 values for the 2 columns"),
        (GOOD_ROW.replace(b"N", b"K", 1), "tuple marker"),
        (struct.pack("!cIcH", b"I", 5, b"N", 2) + b"nb\0\0\0\x01x", "binary value"),
        (struct.pack("!cIcH", b"I", 5, b"N", 2) + b"nz", "value kind 0x7a"),
        (
            struct.pack("!cIcH", b"I", 5, b"N", 2) + b"nt\x7f\xff\xff\xffx",
            "lengths say",
        ),
        (
            messages.begin(commit_lsn=1, committed_at=0, xid=1)[:-1],
            "20 bytes, expected 21",
        ),
        (messages.commit(commit_lsn=1, end_lsn=2) + b"x", "27 bytes, expected 26"),
        (messages.relation(5, "s", "t", [("c", 25)]) + b"x", "its lengths say"),
        (messages.relation(5, "s", "t", [("c", 25)])[:-3], "cut off"),
        (b"R\0\0\0\x05\xff\xfe\0t\0d\0\0", "garbled"),
    ],
)
def test_bytes_that_do_not_fit_are_an_error_with_the_place(
    payload: bytes, words: str
) -> None:
    with pytest.raises(DecodeError, match=words):
        prepared().decode(payload)


@given(st.binary(max_size=80), st.sampled_from(b"BCRIUDTOYMSEcA\0"))
def test_any_bytes_are_a_change_or_a_decode_error(payload: bytes, tag: int) -> None:
    decoder = prepared()
    try:
        change = decoder.decode(bytes([tag]) + payload)
    except DecodeError:
        return
    assert isinstance(change, Begin | Commit | Relation | Insert | Skipped)


def test_the_publication_is_quoted_for_the_option() -> None:
    assert options('my "own"') == {
        "proto_version": "1",
        "publication_names": '"my ""own"""',
    }
