"""What roles, databases and publications can do to a stream, and do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from cdc.errors import CdcError, OperatorNeeded, RequirementMissing
from cdc.outbox import Columns, TableName, Template
from cdc.testing import MemorySink
from slots.lsn import Lsn
from tests.in_process import relay_source, running
from tests.postgres_source import OUTBOX, connect
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.session import Session
    from tests.postgres_source import Source

HOSTILE = {
    "client_min_messages": "error",
    "row_security": "on",
    "DateStyle": "'SQL, DMY'",
    "TimeZone": "'Asia/Kolkata'",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "search_path": "nowhere",
    "statement_timeout": "1",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "1",
    "idle_session_timeout": "1000",
    "client_encoding": "LATIN1",
}
ROW = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, raw, f, iv, tz)"
    " VALUES ('o', 'zoë', 't', '\"é\"', '\\x00ff', 0.1::float8 + 0.2, '1 day 02:03',"
    " '2024-03-02 04:05:06.7+00')"
)


async def outlives_its_timeouts(session: Session) -> None:
    """Wait for longer than any timeout of the role; the stream must still run."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    def has_lasted() -> bool:
        assert session.stream is not None
        assert not session.stream.ended.is_set()
        return loop.time() - began > 1.5

    await eventually(has_lasted, 10.0)


async def test_hostile_defaults_of_a_role_change_nothing(source: Source) -> None:
    await source.create_outbox()
    await source.execute(
        "ALTER TABLE outbox ADD raw bytea, ADD f float8, ADD iv interval,"
        " ADD tz timestamptz"
    )
    role = f"hostile_{source.slot}"
    await source.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    for name, value in HOSTILE.items():
        await source.execute(f"ALTER ROLE {role} SET {name} = {value}")
    mapped = {"payload": ("raw",), "key": ("aggregateid",)}
    subject = relay_source(
        source,
        dsn=make_conninfo(source.dsn, user=role),
        columns=Columns(**mapped),
        topic="t",
        record_headers=tuple(
            (name, Template.parse(f"{{{name}}}"))
            for name in ("f", "iv", "tz", "payload")
        ),
        status_interval_s=0.3,
    )
    sink = MemorySink()

    async with running(subject, sink) as session:
        await source.execute(ROW)
        (event,) = await sink.wait_for(1)
        await outlives_its_timeouts(session)
        await source.execute(ROW)
        await sink.wait_for(2)

    headers = dict(event.headers)
    assert event.key == "zoë".encode()
    assert event.value == b"\x00\xff"
    assert headers["f"] == b"0.30000000000000004"
    assert headers["iv"] == b"1 day 02:03:00"
    assert headers["tz"] == b"2024-03-02 04:05:06.7+00"
    assert headers["payload"] == '"é"'.encode()
    await source.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("plugin", ["pgoutput", "wal2json"])
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_what_an_encoding_cannot_carry_is_refused_and_latin1_is_carried(
    source_of: Callable[..., Awaitable[Source]], encoding: str, plugin: str
) -> None:
    source = await source_of("15", plugin)
    name = f"{source.database}_{encoding.lower()}"
    async with await connect(source.server.dsn("postgres")) as admin:
        await admin.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'"
            " LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
    source.database, source.dsn = name, source.server.dsn(name)
    await source.create_outbox()
    sink = MemorySink()

    async def carry() -> None:
        async with running(relay_source(source), sink):
            await source.insert_event("order", "zoë", payload="é")
            await sink.wait_for(1)

    if (encoding, plugin) == ("LATIN1", "pgoutput"):
        await carry()
        assert sink.events[0].key == "zoë".encode()
        assert sink.events[0].value == '"é"'.encode()
    else:
        with pytest.raises(RequirementMissing, match=encoding):
            await carry()


async def ended(session: Session) -> None:
    await eventually(
        lambda: session.stream is not None and session.stream.ended.is_set(), 15.0
    )


@pytest.mark.parametrize("major", ["15", "18"])
async def test_a_publication_that_goes_stops_the_stream_and_confirms_nothing_beyond(
    source_of: Callable[..., Awaitable[Source]], major: str
) -> None:
    """Postgres 18 would skip what follows and say so only in a notice."""
    source = await source_of(major, "pgoutput")
    await source.create_outbox()
    sink = MemorySink()
    limits = []

    async def lose_it() -> None:
        async with running(relay_source(source), sink) as session:
            await source.insert_event("order", "1")
            await sink.wait_for(1)
            await source.execute("DROP PUBLICATION walferry")
            position = await source.value("SELECT pg_current_wal_lsn()::text")
            limits.append(Lsn.parse(position))
            await source.insert_event("order", "2")
            await ended(session)

    with pytest.raises(CdcError) as raised:
        await lose_it()

    assert isinstance(raised.value, RequirementMissing | OperatorNeeded)
    assert "walferry" in str(raised.value)
    assert len(sink.events) == 1
    row = await source.slot_row()
    assert row is not None
    assert Lsn.parse(row["confirmed_flush_lsn"]) <= limits[0] + 1000


async def test_a_table_that_leaves_the_publication_is_noticed_in_an_interval(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("18", "pgoutput")
    await source.create_outbox()

    async def take_it_out() -> None:
        subject = relay_source(source, status_interval_s=0.3)
        async with running(subject, MemorySink()) as session:
            await source.execute("ALTER PUBLICATION walferry DROP TABLE outbox")
            await ended(session)

    with pytest.raises(RequirementMissing, match="outbox"):
        await take_it_out()


async def test_several_outboxes_share_a_relay(source: Source) -> None:
    await source.create_outbox()
    await source.execute("CREATE SCHEMA billing")
    await source.execute(OUTBOX.replace("public.outbox", "billing.outbox"))
    await source.execute("ALTER PUBLICATION walferry ADD TABLE billing.outbox")
    tables = (TableName("public", "outbox"), TableName("billing", "outbox"))
    sink = MemorySink()

    async with running(
        relay_source(source, tables=tables, topic="{schema}.{aggregatetype}"), sink
    ):
        for schema in ("public", "billing", "public"):
            await source.execute(
                f"INSERT INTO {schema}.outbox (aggregatetype, aggregateid, type)"
                " VALUES ('order', '1', 't')"
            )
        events = await sink.wait_for(3)

    assert [event.topic for event in events] == [
        "public.order",
        "billing.order",
        "public.order",
    ]


async def test_any_insert_only_table_is_an_outbox(source: Source) -> None:
    """Other names, a serial id, a constant topic, an Avro-like payload."""
    await source.create_outbox()
    await source.execute(
        'CREATE TABLE "Event Log" (seq bigserial PRIMARY KEY, "Kind" varchar(20),'
        " entity bigint, body bytea, tenant int)"
    )
    await source.execute('ALTER PUBLICATION walferry ADD TABLE "Event Log"')
    columns = Columns(
        id=("seq",),
        aggregate_type=(),
        key=("entity",),
        type=("Kind",),
        payload=("body",),
        partition_key=("tenant",),
    )
    table = TableName("public", "Event Log")
    subject = relay_source(source, tables=(table,), columns=columns, topic="events")
    sink = MemorySink()

    async with running(subject, sink):
        await source.execute(
            'INSERT INTO "Event Log" ("Kind", entity, body, tenant)'
            " VALUES ('Made', 9007199254740993, '\\x0001', 7)"
        )
        (event,) = await sink.wait_for(1)

    assert (event.topic, event.event_id) == ("events", "1")
    assert (event.key, event.value) == (b"9007199254740993", b"\x00\x01")
    assert event.partition_key == b"7"
    assert event.headers[:2] == [("id", b"1"), ("type", b"Made")]
