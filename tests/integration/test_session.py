"""Rows of a real server through a real session into a sink that keeps its promises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cdc.outbox import Columns, Template
from cdc.testing import MemorySink
from slots.lsn import Lsn
from tests.in_process import relay_source, running
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.postgres_source import Source


async def test_a_committed_row_becomes_an_event_with_its_exact_bytes(
    source: Source,
) -> None:
    await source.create_outbox()
    sink = MemorySink()

    async with running(relay_source(source), sink):
        event_id = await source.insert_event(
            "order", "k-1", type="OrderPlaced", payload={"b": None, "a": [1, 2.50]}
        )
        (event,) = await sink.wait_for(1)

    assert event.topic == "outbox.event.order"
    assert event.key == b"k-1"
    assert event.value == b'{"a": [1, 2.5], "b": null}'
    headers = dict(event.headers)
    assert [name for name, _ in event.headers] == [
        "id",
        "type",
        "cdc.position",
        "cdc.xid",
        "cdc.last",
    ]
    assert headers["id"] == event_id.encode()
    assert headers["type"] == b"OrderPlaced"
    assert headers["cdc.last"] == b"1"
    assert json.loads(event.value or b"") == {"a": [1, 2.5], "b": None}


async def test_nothing_of_a_rollback_or_a_lost_savepoint_is_published(
    source: Source,
) -> None:
    await source.create_outbox()
    sink = MemorySink()
    connection = await source.open()

    async with running(relay_source(source), sink):
        await connection.execute("BEGIN")
        await source.insert_event("order", "rolled-back")
        await connection.execute("ROLLBACK")
        await connection.execute("BEGIN")
        await source.insert_event("order", "kept")
        await connection.execute("SAVEPOINT s")
        await source.insert_event("order", "given-up")
        await connection.execute("ROLLBACK TO SAVEPOINT s")
        await source.insert_event("order", "kept-too")
        await connection.execute("COMMIT")
        await source.insert_event("order", "last")
        events = await sink.wait_for(3)

    assert [event.key for event in events] == [b"kept", b"kept-too", b"last"]
    positions = [dict(event.headers)["cdc.position"] or b"" for event in events]
    assert positions == sorted(set(positions))
    assert positions[0].endswith(b"-00000000")
    assert positions[1].endswith(b"-00000001")


async def test_the_slot_reaches_the_end_of_what_is_delivered(source: Source) -> None:
    await source.create_outbox()
    sink = MemorySink()

    async with running(relay_source(source), sink):
        await source.insert_event()
        await sink.wait_for(1)
        target = Lsn.parse(await source.value("SELECT pg_current_wal_lsn()::text"))

        async def confirmed() -> bool:
            row = await source.slot_row()
            assert row is not None
            return Lsn.parse(row["confirmed_flush_lsn"]) >= target

        await eventually(confirmed, 10.0, what=f"the slot reaches {target}")


async def test_a_second_session_repeats_nothing_that_was_confirmed(
    source: Source,
) -> None:
    await source.create_outbox()
    sink = MemorySink()

    for number in range(1, 4):
        async with running(relay_source(source), sink):
            await source.insert_event("order", f"k-{number}")
            await sink.wait_for(number)

    assert [event.key for event in sink.events] == [b"k-1", b"k-2", b"k-3"]


async def test_types_with_names_that_need_quotes_are_carried(source: Source) -> None:
    """wal2json prints such a name as broken JSON, so it is asked for oids instead."""
    await source.create_outbox()
    await source.execute('CREATE SCHEMA "Shop"')
    await source.execute('CREATE DOMAIN "Shop".kind AS text')
    await source.execute('CREATE DOMAIN "Shop".raw AS bytea')
    await source.execute('ALTER TABLE outbox ADD a "Shop".kind, ADD raw "Shop".raw')
    sink = MemorySink()
    columns = Columns(payload=("raw",), headers=("headers",))
    kind = (("kind", Template.parse("{a}")),)

    async with running(
        relay_source(source, columns=columns, record_headers=kind), sink
    ):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, a, raw)"
            " VALUES ('order', '1', 'x', 'big', '\\x00ff')"
        )
        (event,) = await sink.wait_for(1)

    assert event.value == b"\x00\xff"
    assert dict(event.headers)["kind"] == b"big"
