"""The headers column, exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.outbox.row_headers import header_pairs


@pytest.mark.parametrize(
    ("column", "pairs"),
    [
        ("{}", []),
        (" { } ", []),
        ("null", []),
        ('{"a": "x"}', [("a", b"x")]),
        ('{"a": "x", "b": "y"}', [("a", b"x"), ("b", b"y")]),
        ('{"a": "x", "a": "y"}', [("a", b"x"), ("a", b"y")]),
        ('{"n": 1.50, "m": 1e400}', [("n", b"1.50"), ("m", b"1e400")]),
        ('{"n": 123456789012345678901}', [("n", b"123456789012345678901")]),
        ('{"t": true, "z": null}', [("t", b"true"), ("z", None)]),
        ('{"o": {"x":  [1, 2]} }', [("o", b'{"x":  [1, 2]}')]),
        (r'{"e": "\u20ac\n"}', [("e", "€\n".encode())]),
        (r'{"s": "\ud83d"}', [("s", rb'"\ud83d"')]),
        (r'{"s": "\ud800", "t": "\udfff"}', [("s", rb'"\ud800"'), ("t", rb'"\udfff"')]),
        (r'{"\ud83d": "x"}', [(r"\ud83d", b"x")]),
        ('{"empty": "", "": "noname"}', [("empty", b""), ("", b"noname")]),
        ('\n{\t"a"\r:\n"x"\t,"b":[ ]}', [("a", b"x"), ("b", b"[ ]")]),
    ],
)
def test_members_come_in_order_as_they_stand(
    column: str, pairs: list[tuple[str, bytes | None]]
) -> None:
    assert header_pairs(column.encode()) == pairs


@pytest.mark.parametrize(
    "column",
    [
        "",
        " ",
        "[]",
        '"text"',
        "1",
        "{",
        '{"a"',
        '{"a" 1}',
        '{"a":}',
        '{"a":1',
        '{"a":1 "b":2}',
        '{"a":1;"b":2}',
        '{"a";1}',
        "{1: 2}",
        "{null: 2}",
        "{a: 1}",
        '{"a":1} x',
        '{"a":1,}',
        '{"a": tru}',
        "[" * 100_000,
        '{"a":' + "[" * 100_000,
    ],
)
def test_anything_but_an_object_is_refused(column: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|missing|behind|Expecting"):
        header_pairs(column.encode())


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("[]", "not a JSON object"),
        ('{"a":1} x', "behind the object at character 9"),
        ("{1: 2}", "name is missing at character 2"),
        ('{"a" 1}', "':' is missing at character 6"),
        ('{"a":1 "b":2}', "',' is missing at character 8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(column: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        header_pairs(column.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        header_pairs(b'{"a": "\xff"}')


NAMES = st.text(st.characters(codec="utf-8"), max_size=10)


@given(st.dictionaries(NAMES, NAMES | st.none(), max_size=6))
def test_every_object_of_texts_comes_back(members: dict[str, str | None]) -> None:
    expected = [
        (name, None if value is None else value.encode())
        for name, value in members.items()
    ]

    assert header_pairs(json.dumps(members).encode()) == expected
    assert header_pairs(json.dumps(members, ensure_ascii=False).encode()) == expected


BLANKS = st.text(" \t\n\r", max_size=3)
# No surrogates: which of them stay escaped has its own cases above.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)


def spaced(parts: list[str], around: str, brackets: str) -> str:
    inside = f"{around},".join(f"{around}{part}" for part in parts)
    return f"{brackets[0]}{inside}{around}{brackets[1]}"


SCALARS = (
    NUMBERS
    | st.sampled_from(["true", "false", "null"])
    | st.builds(json.dumps, TEXTS, ensure_ascii=st.booleans())
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(spaced, st.lists(inner, max_size=3), BLANKS, st.just("[]"))
        | st.builds(
            spaced,
            st.lists(
                st.builds("{}:{}".format, TEXTS.map(json.dumps), inner), max_size=3
            ),
            BLANKS,
            st.just("{}"),
        )
    ),
    max_leaves=10,
)


@given(st.lists(st.tuples(TEXTS, NESTED), max_size=5), BLANKS)
def test_what_is_no_text_stays_as_it_is_written(
    members: list[tuple[str, str]], blank: str
) -> None:
    column = spaced([f"{json.dumps(n)}{blank}:{v}" for n, v in members], blank, "{}")

    pairs = header_pairs(column.encode())

    assert [name for name, _ in pairs] == [name for name, _ in members]
    for (_, value), (_, written) in zip(pairs, members, strict=True):
        if written == "null":
            assert value is None
        elif written.startswith('"'):
            assert value == json.loads(written).encode()
        else:
            assert value == written.encode()
