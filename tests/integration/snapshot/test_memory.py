"""A table of any size is read in little memory, and can be left at any moment."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.errors import MappingError
from cdc.outbox import Columns
from cdc.snapshot import Bounds, open_snapshot
from slots.connect import connect
from slots.errors import ServerUnavailable
from tests.certificates import make_certificate
from tests.in_process import relay_source
from tests.snapshot_reading import events_of, keys, opened
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.local import LocalPostgres
    from cdc.session import Source as RelaySource
    from tests.postgres_source import Source

MB = 1 << 20


def memory_bytes(field: str) -> int:
    """Return a line of the process's status: VmRSS is now, VmHWM the peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"no {field}")


def forget_peak() -> int:
    """Begin a new peak; return the memory used now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


async def pass_through(relay: RelaySource) -> tuple[int, int, int]:
    """Read all rows and keep none; return their number, bytes and biggest piece."""
    count = size_bytes = biggest = 0
    async with opened(relay) as snapshot:
        reading = snapshot.events(relay.wanted, relay.mapping, Bounds(), run_id="r")
        async for piece in reading:
            count += len(piece)
            weight = sum(len(event.value or b"") for event in piece)
            size_bytes += weight
            biggest = max(biggest, weight)
    return count, size_bytes, biggest


async def fill(source: Source, count: int, payload: str) -> None:
    await source.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
        f" SELECT 'order', n, 'x', {payload} FROM generate_series(1, {count}) AS n"
    )


async def test_200_000_rows_take_a_few_megabytes(plain: Source) -> None:
    await fill(plain, 200_000, "to_jsonb(repeat('y', 300))")
    relay = relay_source(plain)

    before = forget_peak()
    count, size_bytes, biggest = await pass_through(relay)

    assert count == 200_000
    assert size_bytes > 60_000_000
    assert biggest < 2 * MB
    assert memory_bytes("VmHWM") - before < 20 * MB


async def test_rows_of_a_megabyte_behind_small_ones_come_one_by_one(
    plain: Source,
) -> None:
    """As many small rows as make a piece, and then as many big ones."""
    await fill(plain, 12_000, "to_jsonb(n)")
    await fill(plain, 300, f"to_jsonb(repeat('y', {MB}))")
    relay = relay_source(plain)

    before = forget_peak()
    count, size_bytes, biggest = await pass_through(relay)

    assert count == 12_300
    assert size_bytes > 300 * MB
    assert biggest < 3 * MB
    assert memory_bytes("VmHWM") - before < 30 * MB


async def test_rows_come_whole_whatever_their_size(plain: Source) -> None:
    sizes = [0, 1, 8191, 8192, 16 << 10, 5 * MB, 0, 3, 20 * MB, 1, MB - 1, MB, MB + 1]
    for size in sizes:
        await plain.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
            f" VALUES ('order', '{size}', 'x', to_jsonb(repeat('é', {size})))"
        )
    relay = relay_source(plain)

    async with opened(relay) as snapshot:
        events = await events_of(snapshot, relay, Bounds(), piece_bytes=1)

    assert keys(events) == [str(size) for size in sizes]
    for event in events:
        assert event.value == ('"' + "é" * int(event.key or b"") + '"').encode()


async def first_piece(
    connection: AsyncConnection[TupleRow], relay: RelaySource
) -> None:
    async with open_snapshot(connection, None) as snapshot:
        reading = snapshot.events(relay.wanted, relay.mapping, Bounds(), run_id="r")
        async for piece in reading:
            assert piece
            return


@pytest.mark.parametrize("payload_bytes", [10, 100_000])
async def test_reading_can_be_left_at_once(plain: Source, payload_bytes: int) -> None:
    """The rest of a gigabyte is not waited for, and the server is free again."""
    await fill(plain, 3000, f"to_jsonb(repeat('y', {payload_bytes}))")
    relay = relay_source(plain)

    connection = await connect(relay.target)
    pid = connection.info.backend_pid
    began = time.monotonic()
    await first_piece(connection, relay)
    assert time.monotonic() - began < 20
    # In the middle of an answer nothing else can be asked; between two, all can.
    assert connection.closed or payload_bytes == 10
    await connection.close()

    async def is_gone() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        return not await plain.value(query, pid)

    await eventually(is_gone, what="the server has ended the session")


async def test_a_row_that_is_no_event_ends_it_with_its_name(plain: Source) -> None:
    await fill(plain, 5000, "to_jsonb(repeat('y', 1000))")
    await plain.execute("ALTER TABLE outbox ADD other text")
    relay = relay_source(plain, columns=Columns(type=(), id=("other",)))

    async with await connect(relay.target) as connection:
        with pytest.raises(
            MappingError, match=r"row of public\.outbox: its id is NULL"
        ):
            await first_piece(connection, relay)


async def test_being_cancelled_while_the_server_works_ends_at_once(
    plain: Source,
) -> None:
    await fill(plain, 1, "'1'")
    relay = relay_source(plain)
    locker = await psycopg.AsyncConnection.connect(plain.dsn)
    await locker.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")

    async with await connect(relay.target) as connection:
        reading = asyncio.create_task(first_piece(connection, relay))
        pid = connection.info.backend_pid

        async def waits() -> bool:
            query = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
            return bool(await plain.value(query, pid) == "Lock")

        await eventually(waits, what="the server waits for the lock")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await reading
        assert connection.closed
    await locker.close()


async def test_a_line_that_breaks_in_the_middle_is_an_error_and_no_end(
    plain: Source,
) -> None:
    await fill(plain, 5000, "to_jsonb(repeat('y', 10000))")
    relay = relay_source(plain)

    async def read_all(connection: AsyncConnection[TupleRow]) -> None:
        async with open_snapshot(connection, None) as snapshot:
            reading = snapshot.events(relay.wanted, relay.mapping, Bounds(), run_id="r")
            async with aclosing(reading) as pieces:
                async for _ in pieces:
                    pid = connection.info.backend_pid
                    await plain.value("SELECT pg_terminate_backend(%s)", pid)

    async with await connect(relay.target) as connection:
        with pytest.raises(ServerUnavailable, match="terminating connection"):
            await read_all(connection)


async def test_through_tls_no_byte_is_left_waiting(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> None:
    """OpenSSL may hold the rest of an answer of which the socket knows nothing."""
    server = private_postgres("15")
    certificate = make_certificate(tmp_path)
    server.set(
        ssl="on",
        ssl_cert_file=str(server.put("server.crt", certificate.chain)),
        ssl_key_file=str(server.put("server.key", certificate.key)),
    )
    await asyncio.to_thread(server.restart)
    source = await source_of("15", "pgoutput", server=server)
    await source.create_outbox()
    for size in (100, 8000, 16_000, 50_000, 3):
        await fill(source, 300, f"to_jsonb(repeat('y', {size}))")
    relay = relay_source(source, dsn=make_conninfo(source.dsn, sslmode="require"))

    async with asyncio.timeout(30):
        count, _, _ = await pass_through(relay)

    assert count == 1500
