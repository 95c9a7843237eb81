"""Messages become gathered events; what was delivered before is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from cdc.errors import DecodeError
from cdc.intake import Intake
from cdc.metrics import RelayMetrics
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, Template
from cdc.position import Anchor, Cause, Gate, PositionMismatch
from cdc.routes import Routes
from cdc.wal import pgoutput
from cdc.wal.changes import Insert
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import (
    COMMIT_SIZE,
    event,
    facts,
    insert,
    relation,
    stored_position,
    transaction,
)

if TYPE_CHECKING:
    from cdc.wal.frames import Frame

MANY = 5000
REMEMBERED = 4096
NOISE_OID = 99


class Played:
    """An intake, what its metrics count, and how often the publication was seen."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.metrics = RelayMetrics()
        self.looks = 0
        mapping = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))
        # pgoutput names tables by oid: the catalog is never asked.
        self.routes = Routes(mapping, facts(), cast("Any", None), self._covered)
        self.subject = Intake(pgoutput.Decoder(), self.routes, self.metrics, gate)

    async def _covered(self) -> None:
        self.looks += 1

    async def play(self, *messages: Frame) -> None:
        for message in messages:
            assert isinstance(message, bytes)
            taken = self.subject.take(message)
            if isinstance(taken, Insert):
                await self.subject.meet(taken)

    def skipped(self, kind: str) -> float:
        value = self.metrics.registry.get_sample_value
        return value("walferry_changes_skipped_total", {"kind": kind}) or 0.0

    def events(self) -> list[str]:
        batch = self.subject.hand_over().batch()
        return [event.event_id for event in batch.events]


def gate_at(end_lsn: int, *, start: int, anchor: int, xid: int = 7) -> Gate:
    """Give the gate of a relay whose last event's transaction commits at ``anchor``."""
    # pgoutput counts from 2000; the parts' transactions commit at its zero.
    known = Anchor(Lsn(anchor + COMMIT_SIZE), xid, 946_684_800_000_000, "id-0")
    return Gate(
        stored_position(end_lsn, anchor=known), start=Lsn(start), end_lsn=Lsn(end_lsn)
    )


async def test_repeats_are_dropped_and_counted_until_the_stored_position() -> None:
    played = Played(gate_at(2500, start=500, anchor=2000))

    await played.play(*transaction(1000, relation(), event(1), event(2)))
    await played.play(*transaction(2000, event(3)))
    assert not played.subject.is_open
    assert played.events() == []
    assert played.skipped("repeat") == 3

    await played.play(*transaction(3000, event(4)), *transaction(4000, event(5)))

    assert played.subject.is_open
    assert played.events() == ["id-4", "id-5"]
    assert played.skipped("repeat") == 3


async def test_the_anchor_at_the_stored_position_opens_the_way_by_itself() -> None:
    played = Played(gate_at(1000 + COMMIT_SIZE, start=500, anchor=1000))

    await played.play(*transaction(1000, relation(), event(1)))

    assert played.subject.is_open


async def test_a_repeat_ends_its_transaction_without_a_row() -> None:
    """So its end is no anchor, and no event is waited for."""
    played = Played(gate_at(2500, start=500, anchor=2000))
    *messages, commit = transaction(1000, relation(), event(1))
    await played.play(*messages)

    assert isinstance(commit, bytes)
    assert played.subject.take(commit) == Lsn(1000 + COMMIT_SIZE)
    assert played.subject.gathering.anchor is None


async def test_on_another_history_it_ends_before_the_first_event() -> None:
    played = Played(gate_at(2500, start=500, anchor=2000, xid=7))
    await played.play(*transaction(1000, relation(), event(1), xid=6))
    await played.play(*transaction(2000, event(2), xid=8))

    with pytest.raises(PositionMismatch) as refused:
        await played.play(*transaction(3000, event(3), xid=9))

    assert refused.value.cause is Cause.ANCHOR
    assert played.events() == []
    assert not played.subject.is_open


async def test_an_event_where_our_history_had_none_ends_it() -> None:
    played = Played(gate_at(2500, start=500, anchor=1000))
    await played.play(*transaction(1000, relation(), event(1)))

    with pytest.raises(PositionMismatch, match="never had"):
        await played.play(*transaction(2000, event(2)))

    assert played.events() == []


async def test_other_tables_where_our_history_had_no_event_are_no_matter() -> None:
    played = Played(gate_at(2500, start=500, anchor=1000))

    await played.play(*transaction(1000, relation(), event(1)))
    noise = relation(NOISE_OID, "noise"), event(2, oid=NOISE_OID)
    await played.play(*transaction(2000, *noise))
    await played.play(*transaction(3000, event(3)))

    assert played.events() == ["id-3"]
    assert played.skipped("foreign_insert") == 1


async def test_a_keepalive_beyond_the_stored_position_opens_the_way() -> None:
    played = Played(gate_at(2500, start=1500, anchor=1000))

    played.subject.passed(Lsn(2499))
    assert not played.subject.is_open
    played.subject.passed(Lsn(2500))
    assert played.subject.is_open
    played.subject.passed(Lsn(2600))


async def test_a_keepalive_beyond_the_anchor_that_has_not_come_ends_it() -> None:
    played = Played(gate_at(2500, start=500, anchor=1000))

    played.subject.passed(Lsn(1000))
    with pytest.raises(PositionMismatch):
        played.subject.passed(Lsn(1000 + COMMIT_SIZE))


async def test_without_anything_stored_everything_is_new() -> None:
    played = Played()

    await played.play(*transaction(1000, relation(), event(1)))
    played.subject.passed(Lsn(2000))

    assert played.subject.is_open
    assert played.events() == ["id-1"]
    assert played.skipped("repeat") == 0


async def test_a_row_of_an_unknown_relation_is_given_back_untaken() -> None:
    played = Played()
    begin, told, first, commit = transaction(1000, relation(), event(1))
    await played.play(begin, told)

    assert isinstance(first, bytes)
    given = played.subject.take(first)

    assert isinstance(given, Insert)
    assert played.routes.bindings == {}
    await played.subject.meet(given)
    await played.play(commit)
    assert played.events() == ["id-1"]


async def test_the_publication_is_looked_at_before_the_first_row_of_each_telling() -> (
    None
):
    played = Played()

    await played.play(*transaction(1000, relation(), event(1), event(2)))
    assert played.looks == 1
    await played.play(*transaction(2000, event(3)))
    assert played.looks == 1
    await played.play(*transaction(3000, relation(), event(4), event(5)))
    assert played.looks == 2
    # Told without a row of it: there is nothing that could be missing before.
    await played.play(*transaction(4000, relation(), relation()))
    assert played.looks == 2


async def test_rows_find_their_own_however_often_their_table_is_told_anew() -> None:
    played = Played()
    tellings = [part for n in range(MANY) for part in (relation(), event(n))]

    await played.play(*transaction(1000, *tellings))

    assert len(played.routes.bindings) <= REMEMBERED
    assert played.events() == [f"id-{n}" for n in range(MANY)]


async def test_an_event_that_is_held_back_outlives_any_number_of_other_tables() -> None:
    played = Played()
    noise = [
        part
        for oid in range(100_000, 100_000 + MANY)
        for part in (relation(oid, f"noise_{oid}"), event(0, oid=oid))
    ]

    await played.play(*transaction(1000, relation(), event(1), *noise, event(2)))

    assert len(played.routes.bindings) <= REMEMBERED
    assert played.events() == ["id-1", "id-2"]
    assert played.skipped("foreign_insert") == MANY


async def test_changes_that_are_no_inserts_are_counted() -> None:
    played = Played()
    await played.play(*transaction(1000, relation(), event(1)))

    await played.play(b"T\0\0\0\1\0" + (4711).to_bytes(4, "big"))

    assert played.skipped("truncate") == 1
    assert played.events() == ["id-1"]


@pytest.mark.parametrize("values", [("1",), ("1",) * 9])
async def test_a_row_that_is_not_of_its_layout_is_no_message(
    values: tuple[str, ...],
) -> None:
    played = Played()
    begin, *_rest = transaction(1000)
    await played.play(begin, relation())

    with pytest.raises(DecodeError):
        await played.play(insert(*values))
