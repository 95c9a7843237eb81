"""Messages as the output plugins build them, for tests: encoders in our own words."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

Cell = str | None

IDENTIFIERS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"),
    min_size=1,
    max_size=20,
)
CELLS = st.none() | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=50
)


# Value's text, the type's oid, and how wal2json tells it (facts: ARCHITECTURE.md).
Typed = tuple[Cell, int, str]
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,500})(\.[0-9]{1,400})?(e[+-][0-9]{2,3})?", fullmatch=True
)
TYPED: st.SearchStrategy[Typed] = st.one_of(
    CELLS.map(lambda text: (text, 25, json.dumps(text))),
    CELLS.map(lambda text: (text, 3802, json.dumps(text, ensure_ascii=False))),
    NUMBERS.map(lambda text: (text, 1700, text)),
    st.integers(-(2**63), 2**64).map(lambda n: (str(n), 20, str(n))),
    st.booleans().map(lambda yes: ("ft"[yes], 16, json.dumps(yes))),
    st.binary(max_size=40).map(
        lambda raw: (f"\\x{raw.hex()}", 17, json.dumps(raw.hex()))
    ),
    # A domain over bytea keeps the prefix that the plugin cuts off bytea.
    st.binary(max_size=40).map(
        lambda raw: (f"\\x{raw.hex()}", 16400, json.dumps(f"\\x{raw.hex()}"))
    ),
    st.just((None, 17, "null")),
)


def begin(*, commit_lsn: int, committed_at: int, xid: int) -> bytes:
    return struct.pack("!cQqI", b"B", commit_lsn, committed_at, xid)


def commit(*, commit_lsn: int, end_lsn: int) -> bytes:
    return struct.pack("!cBQQq", b"C", 0, commit_lsn, end_lsn, 0)


def relation(
    oid: int, schema: str, name: str, columns: Sequence[tuple[str, int]]
) -> bytes:
    head = struct.pack("!cI", b"R", oid) + schema.encode() + b"\0" + name.encode()
    body = b"".join(
        b"\x01" + column.encode() + b"\0" + struct.pack("!Ii", type_oid, -1)
        for column, type_oid in columns
    )
    return head + b"\0d" + struct.pack("!H", len(columns)) + body


def cell(value: Cell) -> bytes:
    if value is None:
        return b"n"
    text = value.encode()
    return b"t" + struct.pack("!I", len(text)) + text


def insert(oid: int, row: Sequence[Cell]) -> bytes:
    head = struct.pack("!cIcH", b"I", oid, b"N", len(row))
    return head + b"".join(cell(value) for value in row)


def json_insert(
    schema: str,
    table: str,
    columns: Sequence[tuple[str, int, str]],
    *,
    xid: int = 7,
) -> bytes:
    """Build wal2json's insert; each column is (name, type oid, JSON of its value)."""
    cells = ",".join(
        f'{{"name":{json.dumps(name)},"typeoid":{oid},"value":{value}}}'
        for name, oid, value in columns
    )
    return (
        f'{{"action":"I","xid":{xid},"timestamp":"2026-11-30 21:12:35.553895+00",'
        f'"lsn":"0/154BBF8","schema":{json.dumps(schema)},"table":{json.dumps(table)},'
        f'"columns":[{cells}]}}'
    ).encode()
