"""Table names, templates and topics as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.outbox import TableName, Template, check_topic, parse_tables


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("public.outbox", [("public", "outbox")]),
        ("public.Outbox", [("public", "Outbox")]),
        (' public . "Out,box" ', [("public", "Out,box")]),
        ('"We.ird Sch"."Out,box*"', [("We.ird Sch", "Out,box*")]),
        ('"a""b".c', [('a"b', "c")]),
        ("a.b,c.d", [("a", "b"), ("c", "d")]),
        ('"a.b"."c", d."e f"', [("a.b", "c"), ("d", "e f")]),
    ],
)
def test_what_is_written_is_what_is_meant(
    text: str, tables: list[tuple[str, str]]
) -> None:
    assert parse_tables(text) == tuple(TableName(*table) for table in tables)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "outbox",
        "a.b.c",
        "a.b,",
        ",a.b",
        "a.b c.d",
        'a."b',
        "a..b",
        "a.b,a.b",
        '"".b',
    ],
)
def test_what_is_no_list_of_tables_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"table|character|part"):
        parse_tables(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (",a.b", "expected a table name at character 1 "),
        ("a.b,", "expected a table name at character 5 "),
        ("a.b c.d", "unexpected 'c' at character 5"),
        ("a.b.c", "'a.b.c' has 3 part"),
        ("a.b,a.b", "names a table twice"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_tables(text)


PARTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=4, unique=True))
def test_a_printed_name_is_read_back(names: list[tuple[str, str]]) -> None:
    tables = tuple(TableName(*name) for name in names)

    assert parse_tables(",".join(str(table) for table in tables)) == tables


def test_a_template_knows_its_columns() -> None:
    template = Template.parse("x{{y}}.{tenant}.{table}.{tenant}.{Event Type}")

    assert template.columns == ("tenant", "Event Type")
    assert template.literals == "x{y}...."
    assert not template.is_constant
    assert Template.parse("orders").is_constant
    assert not Template.parse("{schema}").is_constant


@pytest.mark.parametrize(
    "text", ["{", "}", "{}", "{a", "a}", "{a!r}", "{a:x}", "{a{b}}"]
)
def test_a_template_with_stray_braces_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="template"):
        Template.parse(text)


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [
        ("a", True),
        ("Orders_v1.eu-west", True),
        ("x" * 249, True),
        ("x" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("...", True),
        ("bad topic", False),
        ("bad/topic!", False),
        ("é", False),
        ("a\n", False),
    ],
)
def test_topic_names_follow_kafkas_rule(
    name: str,
    is_legal: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    assert (check_topic(name) is None) == is_legal
