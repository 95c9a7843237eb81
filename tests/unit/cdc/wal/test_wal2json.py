"""wal2json: the same changes as pgoutput, exact to the digit."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wal import pgoutput, wal2json
from cdc.wal.changes import (
    Begin,
    ColumnType,
    Commit,
    Insert,
    Relation,
    SkipKind,
    Skipped,
)
from slots.lsn import Lsn
from tests.unit.cdc.wal import messages

BEGIN = (
    b'{"action":"B","xid":736,"timestamp":"2026-11-30 21:12:35.553895+00",'
    b'"lsn":"0/154BE90","nextlsn":"0/154BEC0"}'
)
COMMIT = BEGIN.replace(b'"B"', b'"C"')


def decoded_values(*columns: tuple[str, int, str]) -> tuple[object, ...]:
    change = wal2json.Decoder().decode(
        messages.json_insert("public", "outbox", columns)
    )
    assert isinstance(change, Insert)
    return tuple(change.values)


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-0",
        "9223372036854775807",
        "123456789012345678901234567890",
        "123456789012345678.0123456789",
        "1" + "0" * 50,
        # Beyond every double, where quick parsers give up.
        "-1" + "0" * 400,
        "9" * 5000 + ".25",
        "0." + "0" * 400 + "1",
        "-0.00",
        "2.50",
        "1e+20",
        "-1.5e-07",
        "0.1",
    ],
)
def test_numbers_keep_every_digit(number: str) -> None:
    assert decoded_values(("n", 1700, number), ("m", 23, "7")) == (
        number.encode(),
        b"7",
    )


@pytest.mark.parametrize(
    ("type_oid", "value", "expected"),
    [
        (16, "true", b"t"),
        (16, "false", b"f"),
        (25, "null", None),
        (25, '""', b""),
        (17, '"00ff"', b"\\x00ff"),
        (17, '""', b"\\x"),
        (17, "null", None),
        (25, r'"tab\t nul\u0001 \u20ac"', "tab\t nul\x01 €".encode()),
        (114, r'"{\"a\": \"\\ud83d\"}"', rb'{"a": "\ud83d"}'),
        (25, '"emoji 😀"', "emoji 😀".encode()),
    ],
)
def test_values_are_the_text_that_postgres_prints(
    type_oid: int, value: str, expected: bytes | None
) -> None:
    assert decoded_values(("c", type_oid, value)) == (expected,)


def test_a_domain_over_bytea_has_its_prefix_already() -> None:
    decoder = wal2json.Decoder(frozenset({17, 16400}))

    change = decoder.decode(
        messages.json_insert(
            "s", "t", [("raw", 16400, r'"\\x00ff"'), ("n", 1700, "1.5")]
        )
    )

    assert isinstance(change, Insert)
    assert change.relation.columns[0].type is ColumnType.BYTEA
    assert change.values == [b"\\x00ff", b"1.5"]


@given(
    names=st.tuples(messages.IDENTIFIERS, messages.IDENTIFIERS),
    columns=st.lists(st.tuples(messages.IDENTIFIERS, messages.TYPED), max_size=6),
)
def test_both_plugins_tell_the_same_rows(
    names: tuple[str, str], columns: list[tuple[str, messages.Typed]]
) -> None:
    bytea_types = frozenset({17, 16400})
    other = pgoutput.Decoder(bytea_types)
    other.decode(messages.relation(1, *names, [(name, t[1]) for name, t in columns]))
    expected = other.decode(messages.insert(1, [text for _, (text, _, _) in columns]))

    change = wal2json.Decoder(bytea_types).decode(
        messages.json_insert(*names, [(name, t[1], t[2]) for name, t in columns])
    )

    assert isinstance(change, Insert)
    assert isinstance(expected, Insert)
    assert change.values == expected.values
    assert change.relation.columns == expected.relation.columns
    assert (change.relation.schema, change.relation.name) == names


def test_one_layout_is_one_relation() -> None:
    decoder = wal2json.Decoder()
    first = decoder.decode(messages.json_insert("s", "t", [("a", 25, '"x"')]))
    again = decoder.decode(messages.json_insert("s", "t", [("a", 25, '"y"')]))
    other = decoder.decode(messages.json_insert("s", "t", [("b", 25, '"y"')]))
    back = decoder.decode(messages.json_insert("s", "t", [("a", 25, '"z"')]))

    assert isinstance(back, Insert)
    assert isinstance(first, Insert)
    assert isinstance(again, Insert)
    assert isinstance(other, Insert)
    assert first.relation is again.relation is back.relation
    assert first.relation is not other.relation


@pytest.mark.parametrize("number", ["1.5", "-0", "1" + "0" * 400])
def test_one_layout_is_one_relation_whatever_its_numbers(number: str) -> None:
    decoder = wal2json.Decoder()
    one = decoder.decode(messages.json_insert("s", "t", [("n", 1700, "7")]))
    other = decoder.decode(messages.json_insert("s", "t", [("n", 1700, number)]))

    assert isinstance(one, Insert)
    assert isinstance(other, Insert)
    assert one.relation is other.relation


def test_a_database_that_makes_tables_all_day_does_not_fill_memory() -> None:
    decoder = wal2json.Decoder()
    for number in range(wal2json._MAX_RELATIONS + 10):
        decoder.decode(messages.json_insert("s", f"t{number}", [("a", 25, "null")]))

    assert len(decoder._layouts) <= wal2json._MAX_RELATIONS


def test_begin_and_commit_carry_the_positions() -> None:
    decoder = wal2json.Decoder()

    assert decoder.decode(BEGIN) == Begin(
        xid=736,
        commit_lsn=Lsn.parse("0/154BE90"),
        committed_at_us=1_796_073_155_553_895,
    )
    assert decoder.decode(COMMIT) == Commit(
        commit_lsn=Lsn.parse("0/154BE90"), end_lsn=Lsn.parse("0/154BEC0")
    )


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 500_000, 120_300, 999_999]))
def test_commit_times_are_exact_also_where_postgres_trims_zeros(
    seconds: int, microseconds: int
) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    fraction = f".{microseconds:06}".rstrip("0") if microseconds else ""
    text = f"{moment:%Y-%m-%d %H:%M:%S}{fraction}+00"

    change = wal2json.Decoder().decode(
        BEGIN.replace(b"2026-11-30 21:12:35.553895+00", text.encode())
    )

    assert isinstance(change, Begin)
    assert change.committed_at_us == seconds * 1_000_000 + microseconds


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("U", SkipKind.UPDATE),
        ("D", SkipKind.DELETE),
        ("T", SkipKind.TRUNCATE),
        ("M", SkipKind.MESSAGE),
    ],
)
def test_messages_of_no_use_are_named_and_skipped(action: str, kind: SkipKind) -> None:
    message = {"action": action, "schema": "public", "table": "outbox", "columns": []}

    change = wal2json.Decoder().decode(json.dumps(message).encode())

    assert isinstance(change, Skipped)
    assert change.kind is kind


GOOD = messages.json_insert("s", "t", [("a", 25, '"x"')]).decode()


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "[]",
        "{}",
        '{"action": "Z"}',
        '{"action": ["B"]}',
        '{"action": "B"}',
        GOOD[:-1],
        GOOD.replace('"columns"', '"colums"'),
        GOOD.replace('"schema":"s"', '"schema":1'),
        GOOD.replace('"name":"a"', '"name":null'),
        GOOD.replace('"value":"x"', '"value":{}'),
        GOOD.replace('"typeoid":25', '"typeoid":null'),
        GOOD.replace('"typeoid":25', '"typeoid":"x"'),
        BEGIN.decode().replace("736", "0"),
        BEGIN.decode().replace("736", '"7"'),
        BEGIN.decode().replace("736", str(2**32)),
        BEGIN.decode().replace("0/154BE90", "154BE90"),
        BEGIN.decode().replace("2026-11-30", "yesterday"),
        BEGIN.decode().replace("+00", ""),
        GOOD.replace('"typeoid":25', '"typeoid":"25"'),
        GOOD.replace('"x"', "NaN"),
        GOOD.replace('"x"', "1e999").replace('"a"', r'"\ud83d"'),
        GOOD.replace('"x"', "1e999").replace('"s"', r'"\ud83d"'),
        # Deeper than one parser or the other goes.
        GOOD.replace('"x"', "1.5", 1)[:-1] + ',"more":' + "[" * 1010 + "]" * 1010 + "}",
        '{"action":' + "[" * 1010 + "]" * 1010 + "}",
        "[" * 100_000,
    ],
)
def test_anything_else_is_a_decode_error(payload: str) -> None:
    with pytest.raises(DecodeError):
        wal2json.Decoder().decode(payload.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "value", "typeoid", "action", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "action",
                "xid",
                "lsn",
                "nextlsn",
                "timestamp",
                "schema",
                "table",
                "columns",
            ]
        ),
        JSON | st.sampled_from(["B", "C", "I", "U", "D", "0/1"]),
    )
)
def test_any_json_object_is_a_change_or_a_decode_error(
    message: dict[str, object],
) -> None:
    try:
        change = wal2json.Decoder().decode(json.dumps(message).encode())
    except DecodeError:
        return
    assert isinstance(change, Begin | Commit | Relation | Insert | Skipped)


def test_the_table_list_is_escaped_the_plugins_way() -> None:
    chosen = wal2json.options([("We.ird Sch", "Out,box*"), ("public", "outbox")])

    assert chosen["add-tables"] == r"We\.ird\ Sch.Out\,box\*,public.outbox"
    assert "add-tables" not in wal2json.options([])
