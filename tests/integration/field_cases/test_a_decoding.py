"""Field cases A: decoding. Each runs for every server and plugin of the main job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from cdc.errors import ColumnMissing, RequirementMissing
from cdc.metrics import RelayMetrics
from cdc.outbox import Columns, TableName, Template
from cdc.testing import MemorySink
from slots.lsn import Lsn
from tests.in_process import relay_source, running
from tests.waiting import eventually

if TYPE_CHECKING:
    from cdc.outbox import Event
    from tests.postgres_source import Source


def headers_of(event: Event) -> dict[str, bytes | None]:
    return dict(event.headers)


def skipped(metrics: RelayMetrics, kind: str) -> float:
    sample = metrics.registry.get_sample_value(
        "walferry_changes_skipped_total", {"kind": kind}
    )
    return sample or 0.0


async def confirmed(source: Source) -> Lsn:
    row = await source.slot_row()
    assert row is not None
    return Lsn.parse(row["confirmed_flush_lsn"])


async def reaches_the_end(source: Source) -> None:
    """Wait until the slot has let go of everything written so far."""
    end = Lsn.parse(await source.value("SELECT pg_current_wal_lsn()::text"))

    async def is_there() -> bool:
        return await confirmed(source) >= end

    await eventually(is_there, 15.0, what=f"the slot reaches {end}")


async def test_a01_an_update_is_never_an_event_and_a_large_payload_is_whole(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL")
    await source.execute("ALTER PUBLICATION walferry SET (publish = 'insert, update')")
    sink, metrics = MemorySink(), RelayMetrics()

    async with running(relay_source(source), sink, metrics):
        event_id = await source.insert_event(payload={"x": "y" * 20_000})
        await source.execute("UPDATE outbox SET type = 'Changed2'")
        await source.insert_event("order", "behind")
        await sink.wait_for(2)
        await reaches_the_end(source)

    first, second = sink.events
    assert headers_of(first)["id"] == event_id.encode()
    assert first.value == b'{"x": "' + b"y" * 20_000 + b'"}'
    assert second.key == b"behind"
    assert skipped(metrics, "update") == 1


async def test_a03_nan_and_infinities_stay_apart_from_null(source: Source) -> None:
    """Boundary: wal2json prints null for them before anybody else sees the value."""
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD amount numeric, ADD ratio float8")
    sink = MemorySink()
    numbers = (
        ("amount", Template.parse("{amount}")),
        ("ratio", Template.parse("{ratio}")),
    )
    infinite = "NULL" if source.version == "13" else "'Infinity'"

    async with running(relay_source(source, record_headers=numbers), sink):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, amount, ratio)"
            " VALUES ('o', '1', 't', NULL, NULL), ('o', '1', 't', 'NaN', 'NaN'),"
            f" ('o', '1', 't', {infinite}, 'Infinity'),"
            " ('o', '1', 't', '-Infinity', '-Infinity'),"
            " ('o', '1', 't', 123456789012345678.0123456789, 1e-10)"
        )
        events = await sink.wait_for(5)

    seen = [(headers_of(e)["amount"], headers_of(e)["ratio"]) for e in events]
    assert seen[4] == (b"123456789012345678.0123456789", b"1e-10")
    if source.plugin == "wal2json":
        assert seen[:4] == [(None, None)] * 4
    else:
        assert seen[:4] == [
            (None, None),
            (b"NaN", b"NaN"),
            (b"Infinity", b"Infinity"),
            (b"-Infinity", b"-Infinity"),
        ]


async def test_a05_bytea_is_exact_whatever_the_roles_output_format(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD raw bytea")
    role = f"escape_{source.slot}"
    await source.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    await source.execute(f"ALTER ROLE {role} SET bytea_output = 'escape'")
    sink = MemorySink()
    subject = relay_source(
        source,
        dsn=make_conninfo(source.dsn, user=role),
        columns=Columns(payload=("raw",)),
    )

    async with running(subject, sink):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, raw) VALUES"
            " ('o', '1', 't', '\\x00ff5c78'), ('o', '1', 't', '\\x'),"
            " ('o', '1', 't', NULL)"
        )
        events = await sink.wait_for(3)

    assert [event.value for event in events] == [b"\x00\xff\x5c\x78", b"", None]
    await source.execute(f"DROP ROLE {role}")


async def test_a07_times_at_the_edges_are_the_text_that_postgres_prints(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD due timestamptz, ADD d date")
    sink = MemorySink()
    times = (("due", Template.parse("{due}")), ("d", Template.parse("{d}")))

    async with running(relay_source(source, record_headers=times), sink):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, due, d) VALUES"
            " ('o', '1', 't', 'infinity', 'infinity'),"
            " ('o', '1', 't', '-infinity', '-infinity'),"
            " ('o', '1', 't', '0044-03-15 00:00:00+00 BC', '0044-03-15 BC'),"
            " ('o', '1', 't', '294276-12-31 00:00:00+00', '5874897-12-31'),"
            " ('o', '1', 't', '2024-02-29 23:59:60+00', '2024-02-29')"
        )
        events = await sink.wait_for(5)
        await reaches_the_end(source)

    assert [(headers_of(e)["due"], headers_of(e)["d"]) for e in events] == [
        (b"infinity", b"infinity"),
        (b"-infinity", b"-infinity"),
        (b"0044-03-15 00:00:00+00 BC", b"0044-03-15 BC"),
        (b"294276-12-31 00:00:00+00", b"5874897-12-31"),
        (b"2024-03-01 00:00:00+00", b"2024-02-29"),
    ]


async def test_a09_json_text_passes_through_byte_for_byte(source: Source) -> None:
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD j json, ADD t text")
    text = (
        r'{"a":"tab\t nl\n quote\" back\\ slash\/ euro€ emoji😀 esc\ud83d\ude00'
        r' nul\u0000 sep\u2028",  "a" :1}'
    )
    as_json, as_text = MemorySink(), MemorySink()

    async with running(relay_source(source, columns=Columns(payload=("j",))), as_json):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, j, t)"
            " VALUES ('o', '1', 't', %s, E'\\x01\\x1f\\t')",
            text,
        )
        await as_json.wait_for(1)
    async with running(relay_source(source, columns=Columns(payload=("t",))), as_text):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, t)"
            " VALUES ('o', '1', 't', E'\\x01\\x1f\\t')"
        )
        await as_text.wait_for(1)

    assert as_json.events[0].value == text.encode()
    assert as_text.events[-1].value == b"\x01\x1f\t"


ODD = TableName("We.ird Sch", "Out,box*")


async def _odd_table(source: Source) -> None:
    await source.execute('CREATE SCHEMA "We.ird Sch"')
    await source.execute('CREATE SCHEMA "we.ird sch"')
    await source.create_outbox()
    for table in (str(ODD), '"we.ird sch"."out,box*"'):
        await source.execute(f"CREATE TABLE {table} (LIKE outbox INCLUDING ALL)")
        await source.execute(f"ALTER PUBLICATION walferry ADD TABLE {table}")


async def test_a11_only_the_table_that_was_named_is_read(source: Source) -> None:
    await _odd_table(source)
    sink = MemorySink()

    async with running(relay_source(source, tables=(ODD,)), sink):
        for table, key in (
            ('"we.ird sch"."out,box*"', "wrong"),
            (str(ODD), "right"),
            ("outbox", "wrong too"),
            (str(ODD), "right again"),
        ):
            await source.execute(
                f"INSERT INTO {table} (aggregatetype, aggregateid, type)"
                f" VALUES ('o', '{key}', 't')"
            )
        await sink.wait_for(2)
        await reaches_the_end(source)

    assert [event.key for event in sink.events] == [b"right", b"right again"]


async def test_a11_a_wrong_case_is_refused_before_anything_is_read(
    source: Source,
) -> None:
    await _odd_table(source)
    before = await confirmed(source)
    wrong = TableName("We.ird Sch", "out,box*")

    with pytest.raises(RequirementMissing, match="Out,box"):
        async with running(relay_source(source, tables=(wrong,)), MemorySink()):
            pass

    assert await confirmed(source) == before


async def test_a13_columns_come_and_go_and_a_rename_stops_with_a_name(
    source: Source,
) -> None:
    await source.create_outbox()
    sink = MemorySink()

    async def event(key: str) -> None:
        await source.insert_event("order", key)

    async def until_the_rename() -> None:
        async with running(relay_source(source), sink) as session:
            await event("1")
            await source.execute("ALTER TABLE outbox ADD note text DEFAULT 'd'")
            await event("2")
            await source.execute("ALTER TABLE outbox DROP COLUMN note")
            await event("3")
            connection = await source.open()
            async with connection.transaction():
                await event("4")
                await source.execute("ALTER TABLE outbox ADD z int")
                await event("5")
            await sink.wait_for(5)
            await source.execute("ALTER TABLE outbox RENAME aggregateid TO agg")
            await source.execute(
                "INSERT INTO outbox (aggregatetype, agg, type) VALUES ('o', '6', 't')"
            )
            await eventually(lambda: session.stream and session.stream.ended.is_set())

    with pytest.raises((ColumnMissing, RequirementMissing), match="aggregateid"):
        await until_the_rename()

    assert [event.key for event in sink.events] == [b"1", b"2", b"3", b"4", b"5"]

    columns = Columns(key=("aggregateid", "agg"), headers=("headers",))
    async with running(relay_source(source, columns=columns), sink):
        await sink.wait_for(6)
        await reaches_the_end(source)

    assert sink.events[-1].key == b"6"


PARTITIONED = """
CREATE TABLE outbox (
    id uuid DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
    aggregateid text NOT NULL, type text NOT NULL, payload jsonb, headers jsonb,
    created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at)
"""


async def test_a15_rows_of_later_partitions_belong_to_the_parent(
    source: Source,
) -> None:
    await source.create_outbox(PARTITIONED)
    await source.execute("CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT")
    sink = MemorySink()
    topic = "{schema}.{table}"

    async def insert(table: str, key: str, at: str) -> None:
        await source.execute(
            f"INSERT INTO {table} (aggregatetype, aggregateid, type, created_at)"
            " VALUES ('o', %s, 't', %s)",
            key,
            at,
        )

    async with running(relay_source(source, topic=topic), sink):
        await insert("outbox", "rest", "2020-01-01")
        await source.execute(
            "CREATE TABLE outbox_later PARTITION OF outbox"
            " FOR VALUES FROM ('2031-01-01') TO ('2031-02-01')"
        )
        await insert("outbox", "later", "2031-01-15")
        await insert("outbox_later", "leaf", "2031-01-16")
        await sink.wait_for(3)
        await reaches_the_end(source)

    assert [event.key for event in sink.events] == [b"rest", b"later", b"leaf"]
    assert {event.topic for event in sink.events} == {"public.outbox"}


async def test_a15_a_leaf_that_is_gone_stops_wal2json_and_not_pgoutput(
    source: Source,
) -> None:
    await source.create_outbox(PARTITIONED)
    await source.execute("CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT")
    before = Lsn.parse(await source.value("SELECT pg_current_wal_lsn()::text"))
    await source.insert_event("order", "1")
    await source.execute("DROP TABLE outbox_rest")
    sink = MemorySink()

    if source.plugin == "pgoutput":
        async with running(relay_source(source), sink):
            await sink.wait_for(1)
        return
    with pytest.raises(RequirementMissing, match="outbox_rest"):
        async with running(relay_source(source), sink) as session:
            await eventually(lambda: session.stream and session.stream.ended.is_set())
    assert sink.events == []
    assert await confirmed(source) <= before


async def test_a17_truncate_is_counted_and_what_surrounds_it_is_published(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("CREATE TABLE noise (id bigserial PRIMARY KEY)")
    await source.execute(
        "ALTER PUBLICATION walferry SET (publish = 'insert, update, delete, truncate')"
    )
    await source.execute("ALTER PUBLICATION walferry ADD TABLE noise")
    sink, metrics = MemorySink(), RelayMetrics()
    connection = await source.open()

    async with running(relay_source(source), sink, metrics):
        async with connection.transaction():
            await source.insert_event("order", "1")
            await source.execute("TRUNCATE outbox, noise CASCADE")
            await source.insert_event("order", "2")
        await source.execute("TRUNCATE outbox RESTART IDENTITY")
        await sink.wait_for(2)
        await reaches_the_end(source)

    assert [event.key for event in sink.events] == [b"1", b"2"]
    assert skipped(metrics, "truncate") >= 2
