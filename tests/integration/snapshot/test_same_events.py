"""A row of the table is the event that the stream made of it, byte for byte."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from cdc.outbox import Columns, TableName, Template
from cdc.testing import MemorySink
from tests.in_process import relay_source, running
from tests.postgres_source import OUTBOX
from tests.snapshot_reading import keys, replayed, without_marks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

TYPES = {
    "js": ("json", r"""'{"b": 1.50,  "a":null, "a": "\u00e9"}'"""),
    "jb": ("jsonb", """'{"b": 1.50,  "a":null, "n": 1e30}'"""),
    "tx": ("text", "E'zwei\\nZeilen \\u00fc \\\\x00 \"x\"'"),
    "by": ("bytea", r"'\x00ff5c78'"),
    "db": ("public.token", r"'\xdeadbeef'"),
    "nu": ("numeric", "-123456789012345678901234567890.12345678901234567890"),
    "f4": ("real", "0.1"),
    "f8": ("double precision", "1e-300"),
    "i8": ("bigint", "-9223372036854775808"),
    "bo": ("boolean", "true"),
    "tz": ("timestamptz", "'2026-06-30 23:59:59.123456+05:45'"),
    "ts": ("timestamp", "'1999-01-01 00:00:00.1'"),
    "da": ("date", "'infinity'"),
    "iv": ("interval", "'1 year 2 days 03:04:05.6'"),
    "uu": ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"),
    "ar": ("text[]", """ARRAY['a,b', NULL, '"']"""),
    "ch": ("char(5)", "'ab'"),
    "en": ("public.mood", "'it''s ok'"),
    "dn": ("public.posint", "7"),
    "nn": ("text", "NULL"),
}
HOSTILE = {
    "bytea_output": "escape",
    "DateStyle": "'German, DMY'",
    "TimeZone": "'Asia/Kathmandu'",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "0",
}


async def typed_outbox(source: Source) -> None:
    await source.execute(r"CREATE DOMAIN public.raw AS bytea")
    await source.execute(r"CREATE DOMAIN public.token AS public.raw NOT NULL")
    await source.execute("CREATE DOMAIN public.posint AS int CHECK (VALUE > 0)")
    await source.execute("CREATE TYPE public.mood AS ENUM ('it''s ok')")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    await source.create_outbox(
        "CREATE TABLE public.outbox (id bigint PRIMARY KEY, aggregatetype text,"
        f" aggregateid text, type text, gone int, headers json, {columns})"
    )
    await source.execute("ALTER TABLE outbox DROP COLUMN gone")
    for name, value in HOSTILE.items():
        await source.execute(f'ALTER DATABASE "{source.database}" SET {name} = {value}')


async def test_every_type_comes_with_the_bytes_of_the_stream(source: Source) -> None:
    await typed_outbox(source)
    values = ", ".join(value for _, value in TYPES.values())
    names = ", ".join(TYPES)
    sink = MemorySink()
    everything = tuple((f"h-{name}", Template.parse(f"{{{name}}}")) for name in TYPES)
    relay = relay_source(
        source,
        columns=Columns(
            payload=("by",), key=("db",), partition_key=("by",), headers=("headers",)
        ),
        topic="orders.{aggregatetype}.{schema}",
        record_headers=everything,
    )

    async with running(relay, sink):
        await source.execute(
            f"INSERT INTO outbox (id, aggregatetype, type, headers, {names})"
            f""" VALUES (1, 'x', 'y', '{{"a": 1.0, "cdc.xid": "9"}}', {values})"""
        )
        (streamed,) = await sink.wait_for(1)
    before_ms = time.time_ns() // 1_000_000
    (event,) = await replayed(relay)

    assert without_marks(event) == without_marks(streamed)
    assert event.key == b"\xde\xad\xbe\xef"
    assert dict(event.headers)["h-nn"] is None
    assert event.headers[-1] == ("cdc.replay", b"r-1")
    assert before_ms <= event.timestamp_ms <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("payload", ["js", "jb", "tx", "nu", "bo", "dn", "nn"])
async def test_any_column_can_be_the_payload(
    source_of: Callable[..., Awaitable[Source]], payload: str
) -> None:
    source = await source_of("18", "pgoutput")
    await typed_outbox(source)
    sink = MemorySink()
    relay = relay_source(source, columns=Columns(payload=(payload,)))

    async with running(relay, sink):
        await source.execute(
            f"INSERT INTO outbox (id, aggregatetype, aggregateid, type, db, {payload})"
            f" VALUES (1, 'x', 'k', 'y', '', {TYPES[payload][1]})"
        )
        (streamed,) = await sink.wait_for(1)

    assert [without_marks(event) for event in await replayed(relay)] == [
        without_marks(streamed)
    ]


async def test_a_partitioned_outbox_is_read_through_its_root(source: Source) -> None:
    await source.create_outbox(
        OUTBOX.replace("uuid PRIMARY KEY", "uuid").rstrip().rstrip(")")
        + ") PARTITION BY LIST (aggregatetype)"
    )
    await source.execute(
        "CREATE TABLE public.orders PARTITION OF outbox FOR VALUES IN ('order')"
    )
    await source.execute("CREATE TABLE public.others PARTITION OF outbox DEFAULT")
    sink = MemorySink()
    relay = relay_source(source)

    async with running(relay, sink):
        for number, kind in enumerate(["a", "order", "b", "order"]):
            await source.insert_event(kind, str(number))
        streamed = await sink.wait_for(4)
    events = await replayed(relay)

    assert keys(events) == ["0", "1", "2", "3"]
    assert list(map(without_marks, events)) == list(map(without_marks, streamed))


async def test_several_tables_come_one_after_another_as_they_are_configured(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute('CREATE TABLE public."Out,box" (LIKE outbox INCLUDING ALL)')
    tables = (TableName("public", "Out,box"), TableName("public", "outbox"))
    relay = relay_source(source, tables=tables, topic="{schema}.t")
    for number in range(3):
        await source.insert_event("order", f"second-{number}")
    await source.execute(
        """INSERT INTO "Out,box" (aggregatetype, aggregateid, type)"""
        """ VALUES ('x', 'first-0', 'y')"""
    )

    assert keys(await replayed(relay)) == [
        "first-0",
        "second-0",
        "second-1",
        "second-2",
    ]


async def test_rows_of_a_table_that_inherits_are_not_its_own(source: Source) -> None:
    await source.create_outbox()
    await source.execute("CREATE TABLE public.child () INHERITS (outbox)")
    await source.insert_event("order", "own")
    await source.execute(
        "INSERT INTO child (aggregatetype, aggregateid, type) VALUES ('x', 'k', 'y')"
    )

    assert keys(await replayed(relay_source(source))) == ["own"]
