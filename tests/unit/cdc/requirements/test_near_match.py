from __future__ import annotations

import pytest

from cdc.outbox import TableName
from cdc.requirements.near_match import is_twin, near_match, near_table


@pytest.mark.parametrize(
    ("wanted", "existing", "expected"),
    [
        ("AggregateID", ["id", "aggregateid"], "aggregateid"),
        ("aggregateid", ["id", "aggregate_id", "type"], "aggregate_id"),
        ("payload", ["id", "paylaod"], "paylaod"),
        ("payload", ["id", "type"], None),
        ("payload", [], None),
        ("Out,Box", ["outbox", "out,box"], "out,box"),
    ],
)
def test_the_column_that_was_probably_meant(
    wanted: str, existing: list[str], expected: str | None
) -> None:
    assert near_match(wanted, existing) == expected


def test_a_table_of_another_case_is_nearer_than_one_that_looks_alike() -> None:
    existing = [
        TableName("we.ird sch", "outbox"),
        TableName("We.ird Sch", "Out,box*"),
    ]
    wanted = TableName("we.ird sch", "out,box*")

    assert near_table(wanted, existing) == existing[1]


def test_a_namesake_in_another_schema_is_suggested() -> None:
    existing = [TableName("public", "orders"), TableName("shop", "outbox")]

    assert near_table(TableName("public", "outbox"), existing) == existing[1]


def test_a_slip_of_the_pen_is_found_in_the_same_schema() -> None:
    existing = [TableName("public", "outbox"), TableName("other", "outbux")]

    assert near_table(TableName("public", "outbx"), existing) == existing[0]


def test_nothing_is_suggested_when_nothing_is_like_it() -> None:
    assert near_table(TableName("public", "outbox"), [TableName("a", "b")]) is None


def test_twins_differ_in_case_alone() -> None:
    outbox = TableName("public", "outbox")

    assert is_twin(outbox, TableName("Public", "OutBox"))
    assert not is_twin(outbox, TableName("public", "out_box"))
    assert not is_twin(outbox, TableName("shop", "outbox"))
