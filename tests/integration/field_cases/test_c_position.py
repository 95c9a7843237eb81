"""Field cases C: slot position and acknowledgements."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cdc.errors import Undelivered
from cdc.metrics import RelayMetrics
from cdc.testing import FaultScript, MemorySink
from slots.lsn import Lsn
from tests.in_process import relay_source, running
from tests.postgres_source import connect
from tests.proxy import Direction
from tests.relay_process import RelayProcess, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source
    from tests.proxy import Proxy

COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
NOISE = "INSERT INTO noise SELECT n, repeat('x', 1000) FROM generate_series(1, {}) n"
MEGABYTE = 1 << 20


async def confirmed(source: Source) -> Lsn:
    row = await source.slot_row()
    assert row is not None
    return Lsn.parse(row["confirmed_flush_lsn"])


async def wal_end(source: Source) -> Lsn:
    return Lsn.parse(await source.value("SELECT pg_current_wal_lsn()::text"))


async def test_c01_a_keepalive_does_not_confirm_what_is_in_flight(
    source: Source,
) -> None:
    """Server questions go on meanwhile: its timeout is short, and WAL moves."""
    await source.create_outbox()
    await source.execute("CREATE TABLE noise (id int, filler text)")
    held = MemorySink(FaultScript(hold={0}))
    separator = "&" if "?" in source.dsn else "?"
    quick = f"{source.dsn}{separator}options=-c%20wal_sender_timeout%3D2s"
    subject = relay_source(source, dsn=quick, grace_s=0.1)
    event_ids = []

    async def withhold_the_acknowledgement() -> None:
        async with running(subject, held) as session:
            event_ids.append(await source.insert_event("order", "1"))
            written = await wal_end(source)
            await eventually(lambda: held._held)
            stream = session.stream
            assert stream is not None
            for _ in range(3):
                await source.execute(NOISE.format(10))
                position = await wal_end(source)

                def has_come(position: Lsn = position) -> bool:
                    return stream._received >= position

                await eventually(has_come, 10.0)
                assert await confirmed(source) < written

    with pytest.raises(Undelivered):
        await withhold_the_acknowledgement()

    assert held.events == []
    sink = MemorySink()
    async with running(relay_source(source), sink):
        (event,) = await sink.wait_for(1)
    assert [event.event_id] == event_ids


async def test_c03_an_idle_outbox_in_a_busy_cluster_holds_nothing_back(
    source: Source,
) -> None:
    """Neither other tables nor other databases pin WAL, and we write none."""
    await source.create_outbox()
    await source.execute("CREATE TABLE noise (id int, filler text)")
    sink = MemorySink()

    async with running(relay_source(source, status_interval_s=1.0), sink):
        for database in (source.dsn, source.server.dsn("postgres")):
            async with await connect(database) as elsewhere:
                await elsewhere.execute(
                    "CREATE TEMP TABLE IF NOT EXISTS nothing (id int)"
                )
                for _ in range(5):
                    await elsewhere.execute(
                        "SELECT pg_logical_emit_message(false, 'noise',"
                        " repeat('x', 1000000)) FROM generate_series(1, 6)"
                    )
            await source.execute(NOISE.format(30_000))
            end = await wal_end(source)

            async def is_near(end: Lsn = end) -> bool:
                return end - await confirmed(source) < MEGABYTE

            await eventually(is_near, 20.0, what="the slot follows foreign WAL")
        assert sink.events == []


async def test_c03_an_idle_relay_writes_no_wal(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("18", settings={"autovacuum": "off"})
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    sink = MemorySink()

    async with running(relay_source(source, status_interval_s=0.2), sink):
        await source.insert_event()
        await sink.wait_for(1)
        before = await source.value("SELECT wal_records FROM pg_stat_wal")
        # Ten status intervals: this is the one thing that only time can show.
        await asyncio.sleep(2.0)
        after = await source.value("SELECT wal_records FROM pg_stat_wal")

    assert after - before <= 2  # the server's own snapshot of running transactions


@pytest.mark.parametrize(("major", "plugin"), COMBINATIONS)
async def test_c05_a_slow_broker_costs_no_connection_and_repeats_nothing(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    major: str,
    plugin: str,
) -> None:
    """The broker takes longer for a batch than the server waits for a status."""
    server = private_postgres(major, settings={"wal_sender_timeout": "2s"})
    source = await source_of(major, plugin, server=server)
    await source.create_outbox()
    sink = MemorySink(FaultScript(hold={0}))
    subject = relay_source(source, window_bytes=1 << 16)

    async with running(subject, sink):
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
            " SELECT 'o', 'k', 't', to_jsonb(repeat('x', 1000))"
            " FROM generate_series(1, 1000)"
        )
        await eventually(lambda: sink._held)
        row = await source.slot_row()
        assert row is not None
        pid = row["active_pid"]
        began = asyncio.get_running_loop().time()

        async def outlived_two_timeouts() -> bool:
            now = await source.slot_row()
            assert now is not None
            assert now["active_pid"] == pid
            return asyncio.get_running_loop().time() - began > 5.0

        await eventually(outlived_two_timeouts, 10.0)
        sink.release()
        await sink.wait_for(1000)
        await source.insert_event("order", "behind")
        await sink.wait_for(1001)
        row = await source.slot_row()
        assert row is not None
        assert row["active_pid"] == pid

    assert len(sink.events) == len({event.event_id for event in sink.events}) == 1001


async def test_c07_a_slot_in_use_is_waited_for_and_taken_over(
    source: Source, tmp_path: Path
) -> None:
    await source.create_outbox()
    first = MemorySink()
    settings = environment(
        source,
        CDC_SINK="jsonl",
        CDC_JSONL__PATH=str(tmp_path / "events"),
        CDC_BACKOFF__MAX_S="1",
    )

    async with RelayProcess(settings) as waiting:
        async with running(relay_source(source), first):
            line = None

            def waits() -> bool:
                nonlocal line
                line = next(
                    (e for e in waiting.log if e.get("event") == "waiting"), None
                )
                return line is not None

            # It may have been first; then there is nothing to wait for.
            await eventually(waits, 20.0, what="the second relay waits")
            row = await source.slot_row()
            assert row is not None
            assert str(row["active_pid"]) in line["reason"]  # type: ignore[index]
            assert "walferry" in line["reason"]  # type: ignore[index]
            assert (await waiting.get("/readyz"))[0] == 503
            assert await waiting.metric("walferry_leader") == 0.0
        await waiting.streaming(10.0)
        assert await waiting.metric("walferry_leader") == 1.0
        assert await waiting.stop() == 0


async def test_c07_a_slot_that_is_never_free_ends_the_wait_with_its_own_code(
    source: Source,
) -> None:
    await source.create_outbox()
    settings = environment(source, CDC_SINK="jsonl", CDC_SLOT__WAIT_S="1")

    async with (
        running(relay_source(source), MemorySink()),
        RelayProcess(settings) as waiting,
    ):
        assert await waiting.exited() == 6
        row = await source.slot_row()

    assert row is not None
    assert row["active"]
    assert "Traceback" not in waiting.stderr


async def test_c11_the_last_transaction_does_not_come_again_after_clean_stops(
    source: Source,
) -> None:
    await source.create_outbox()
    await source.execute("CREATE TABLE noise (id int, filler text)")
    sink = MemorySink()
    metrics = RelayMetrics()

    async with running(relay_source(source), sink, metrics):
        await source.insert_event("order", "once")
        end = await wal_end(source)
        await sink.wait_for(1)
    assert await confirmed(source) >= end - MEGABYTE
    assert (await confirmed(source)) > 0

    for number in range(5):
        if number % 2:
            await source.execute(NOISE.format(10))
        async with running(relay_source(source), sink, metrics):
            marker = await source.insert_event("order", f"marker-{number}")
            await sink.wait_for(number + 2)
        assert sink.events[-1].event_id == marker

    keys = [event.key for event in sink.events]
    assert keys == [b"once", *(b"marker-%d" % n for n in range(5))]


async def test_c05_status_flows_while_a_very_large_message_is_half_received(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    proxy: Callable[..., Awaitable[Proxy]],
) -> None:
    """The message takes several times as long as the server waits for a status."""
    server = private_postgres("18", settings={"wal_sender_timeout": "2s"})
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    slow = await proxy(*source.host_and_port)
    sink = MemorySink()
    subject = relay_source(source, dsn=source.dsn_through(slow))

    async with running(subject, sink) as session:
        # 64 KiB at a time: a thousand pieces, and eight seconds.
        slow.delay(0.005, Direction.TO_CLIENT)
        row = await source.slot_row()
        assert row is not None
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
            " VALUES ('o', 'large', 't', to_jsonb(repeat('x', 60000000)))"
        )
        (event,) = await sink.wait_for(1, limit_s=60.0)
        assert session.stream is not None
        assert not session.stream.ended.is_set()
        now = await source.slot_row()
        assert now is not None
        assert now["active_pid"] == row["active_pid"]

    assert event.value == b'"' + b"x" * 60_000_000 + b'"'
