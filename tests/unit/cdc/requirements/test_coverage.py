from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.finding import Finding, Status
from cdc.outbox import TableName
from cdc.requirements import Wanted
from cdc.requirements.coverage import coverage
from cdc.requirements.tables import Table

OUTBOX = TableName("public", "outbox")
GOOD = Table(
    schema="public",
    name="outbox",
    oid=16400,
    kind="r",
    persistence="p",
    root=None,
    leaves_outside_wal=[],
    columns=["id", "topic", "g"],
    generated=["", "", "s"],
    identity="d",
    has_publication=True,
    inserts=True,
    changes=False,
    via_root=True,
    is_listed=True,
    is_published=True,
    published_columns=["id", "topic"],
    row_filter=None,
)


def judged(
    table: Table,
    *,
    plugin: str = "pgoutput",
    version: int = 180006,
    groups: tuple[tuple[str, ...], ...] = (("id",), ("topic",)),
) -> list[Finding]:
    wanted = Wanted(
        slot="walferry",
        plugin=plugin,
        publication="walferry",
        tables=(OUTBOX,),
        required_columns=groups,
    )
    return list(coverage([table], wanted, version, existing=[]))


def failures(found: list[Finding]) -> list[str]:
    return [each.name for each in found if each.status is Status.FAILURE]


def test_a_table_that_is_covered_raises_nothing() -> None:
    assert {each.status for each in judged(GOOD)} == {Status.OK}


def test_any_name_of_a_group_will_do_when_it_arrives() -> None:
    assert failures(judged(GOOD, groups=(("g", "gone", "id"),))) == []


def test_a_group_fails_when_none_of_its_names_arrives() -> None:
    found = judged(GOOD, groups=(("old", "new"),))

    assert failures(found) == ["outbox.columns"]
    assert "old or new" in found[-1].detail


def test_columns_are_not_judged_by_lists_that_the_server_does_not_have() -> None:
    table = replace(GOOD, published_columns=None)

    assert failures(judged(table, version=140023)) == []


@pytest.mark.parametrize(
    ("generated", "plugin", "version", "expected"),
    [
        ("s", "pgoutput", 140023, "outbox.columns"),
        ("s", "pgoutput", 170010, "outbox.columns"),
        ("s", "pgoutput", 180006, "publication.columns"),
        ("s", "wal2json", 150020, None),
        ("v", "pgoutput", 180006, "outbox.columns"),
        ("v", "wal2json", 180006, "outbox.columns"),
    ],
)
def test_generated_columns_arrive_only_where_the_server_sends_them(
    generated: str, plugin: str, version: int, expected: str | None
) -> None:
    table = replace(GOOD, generated=["", "", generated])
    found = judged(table, plugin=plugin, version=version, groups=(("g",),))

    assert failures(found) == ([expected] if expected else [])


def test_a_column_list_is_taken_away_together_with_the_option_it_overrules() -> None:
    table = replace(GOOD, published_columns=["id"])
    found = judged(table, groups=(("g",),))[-1]

    assert "DROP TABLE" in found.remedy
    assert "publish_generated_columns = stored" in found.remedy


def test_the_publication_says_nothing_about_wal2json() -> None:
    table = replace(
        GOOD, has_publication=False, is_published=False, published_columns=None
    )

    assert not any(
        "publication" in each.name for each in judged(table, plugin="wal2json")
    )


def test_a_missing_publication_is_said_once() -> None:
    table = replace(
        GOOD,
        has_publication=False,
        inserts=None,
        is_published=False,
        published_columns=None,
    )

    assert failures(judged(table)) == ["publication.exists"]


def test_a_table_listed_without_via_root_lacks_that_alone() -> None:
    table = replace(
        GOOD,
        kind="p",
        via_root=False,
        is_published=False,
        published_columns=None,
    )

    assert failures(judged(table)) == ["publication.via_root"]


def test_an_update_that_the_publication_forbids_is_said() -> None:
    found = judged(replace(GOOD, changes=True, identity="n"))

    warned = [each.name for each in found if each.status is Status.WARNING]
    assert warned == ["outbox.replica_identity"]
