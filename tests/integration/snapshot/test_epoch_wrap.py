"""A horizon holds across the end of an epoch, where transaction ids begin anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg

from cdc.local.processes import run
from cdc.snapshot import Bounds
from slots.catalog import create_slot_with_snapshot
from slots.connect import connect
from tests.in_process import relay_source
from tests.snapshot_reading import events_of, keys, opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

EPOCH = 1 << 32
NEXT = EPOCH - 100
# Transactions in a file of pg_xact: two bits each, 32 pages of 8 KiB (slru.h, clog.c).
IN_ONE_FILE = 32 * 8192 * 4
FILE_BYTES = 32 * 8192


def set_next_transaction(server: LocalPostgres) -> None:
    """Put a server near the end of epoch 6; what it has is frozen before."""
    for database in ("postgres", "template1"):
        with psycopg.connect(server.dsn(database), autocommit=True) as connection:
            connection.execute("VACUUM (FREEZE)")
    server.stop()
    server.put(f"pg_xact/{NEXT // IN_ONE_FILE:04X}", "\0" * FILE_BYTES)
    moved = ["-e", "6", "-x", str(NEXT), "-u", str(NEXT - 100)]
    program = [server._path("pg_resetwal"), *moved, "-D", str(server.data_dir)]
    run(program, account=server._account)
    server.start()


async def test_rows_of_the_next_epoch_are_behind_those_of_the_last(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("18")
    await asyncio.to_thread(set_next_transaction, server)
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    await source.drop_slot()
    relay = relay_source(source)
    await source.insert_event("order", "old")
    async with opened(relay) as before:
        horizon = before.xmin
    names = [f"new-{number}" for number in range(150)]
    for name in names:
        await source.insert_event("order", name)

    async with opened(relay) as after:
        assert horizon // EPOCH == 6
        assert after.xmax // EPOCH == 7
        assert keys(await events_of(after, relay, Bounds())) == ["old", *names]
        assert keys(await events_of(after, relay, Bounds(horizon=horizon))) == names
    async with (
        await connect(relay.target, replication=True) as line,
        await connect(relay.target) as connection,
    ):
        made = await create_slot_with_snapshot(
            line, connection, source.slot, plugin="pgoutput", timeout_s=20
        )
        async with opened(relay, made.snapshot_name) as exported:
            assert exported.xmin // EPOCH == 7
            events = await events_of(exported, relay, Bounds(horizon=horizon))
            assert keys(events) == names
