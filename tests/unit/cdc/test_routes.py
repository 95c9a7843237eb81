"""A relation of the WAL finds its outbox table, and the publication is looked at."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.errors import ColumnMissing
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, TableName, Template
from cdc.position import Cause, PositionMismatch
from cdc.routes import Routes
from cdc.wal.changes import Column, Relation
from tests.unit.cdc.relay_parts import COLUMNS, OUTBOX_OID, facts, stored_position

OUTBOX = TableName("public", "outbox")
MANY = 10_000
REMEMBERED = 4096


class Publication:
    """Counts how often it is looked at; is not as it was when told so."""

    def __init__(self) -> None:
        self.looks = 0
        self.changed = False

    async def covered(self) -> None:
        self.looks += 1
        if self.changed:
            raise PositionMismatch(
                "changed", cause=Cause.PUBLICATION, position=stored_position()
            )


def routes(publication: Publication | None = None) -> Routes:
    """Give routes whose tables have oids: the catalog is never asked."""
    mapping = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))
    covered = (publication or Publication()).covered
    return Routes(mapping, facts(), cast("Any", None), covered)


def described(
    oid: int | None = OUTBOX_OID,
    name: str = "outbox",
    columns: tuple[str, ...] = COLUMNS,
) -> Relation:
    return Relation(
        oid=oid,
        schema="public",
        name=name,
        columns=tuple(Column(column) for column in columns),
    )


@pytest.mark.parametrize(
    "relation",
    [
        described(),
        # Renamed since the session began.
        described(name="outbox_old"),
        # Made anew since: another oid under the same name.
        described(oid=99),
        # wal2json tells no oid.
        described(oid=None),
    ],
)
async def test_an_outbox_table_is_known_by_its_oid_and_by_its_name(
    relation: Relation,
) -> None:
    subject = routes()

    binding = await subject.find(relation)

    assert binding is not None
    assert subject.bindings == {relation: binding}
    assert subject.is_outbox(relation)


async def test_any_other_table_is_none_and_that_is_remembered() -> None:
    publication = Publication()
    subject, other = routes(publication), described(oid=99, name="noise")

    assert await subject.find(other) is None

    assert subject.bindings == {other: None}
    assert not subject.is_outbox(other)
    assert not subject.is_outbox(None)
    assert publication.looks == 0


async def test_a_layout_without_a_mapped_column_is_refused() -> None:
    subject = routes()

    with pytest.raises(ColumnMissing, match="aggregateid"):
        await subject.find(described(columns=("id", "aggregatetype", "type")))

    assert subject.bindings == {}


async def test_the_publication_is_looked_at_for_every_layout_that_is_told_anew() -> (
    None
):
    """A table that was taken out and put back is told anew, with the same columns."""
    publication = Publication()
    subject = routes(publication)

    for looks in (1, 2, 3):
        await subject.find(described())
        assert publication.looks == looks


async def test_no_row_is_bound_while_the_publication_is_not_as_it_was() -> None:
    publication = Publication()
    subject, again = routes(publication), described()
    await subject.find(described())
    publication.changed = True

    for _ in range(2):
        with pytest.raises(PositionMismatch):
            await subject.find(again)

    assert again not in subject.bindings


async def test_a_plugin_without_a_publication_has_none_to_look_at() -> None:
    publication = Publication()

    await routes(publication).find(described(oid=None))

    assert publication.looks == 0


async def test_what_is_remembered_does_not_grow_with_layouts_told_anew() -> None:
    subject = routes()

    for _ in range(MANY):
        newest = described()
        await subject.find(newest)
        assert len(subject.bindings) <= REMEMBERED
        assert subject.bindings[newest] is not None


async def test_what_is_remembered_does_not_grow_with_other_tables() -> None:
    """And ours stay: a partition that is gone could not be asked for again."""
    subject, ours = routes(), described()
    binding = await subject.find(ours)

    for number in range(MANY):
        await subject.find(described(oid=10_000 + number, name=f"noise_{number}"))
        assert len(subject.bindings) <= REMEMBERED

    assert subject.bindings[ours] is binding
