"""The Postgres side of a measurement: a server, its outbox, slots and their copies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg

from bench.events import NOISE_TABLE
from bench.walferry import init
from cdc.local import LocalPostgres
from cdc.local.account import unprivileged
from cdc.local.postgres_binaries import postgres_programs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bench.events import Events

SETTINGS: Final = {
    # Reading WAL is measured, not the disk that keeps it.
    "fsync": "off",
    # No checkpoint and no vacuum may fall into one run and not into another.
    "max_wal_size": "64GB",
    "checkpoint_timeout": "1d",
    "autovacuum": "off",
}
_DROP_DEADLINE_S: Final = 30.0
_POLL_S: Final = 0.05
_STATEMENT_DEADLINE_S: Final = 900.0


class Source:
    """A Postgres of its own with an outbox, as an async context manager.

    Args:
        version: major version.
        bootstrap_servers: of the Kafka that ``cdc init`` prepares as well.

    """

    def __init__(self, version: str, bootstrap_servers: str) -> None:
        self.version = version
        self._bootstrap_servers = bootstrap_servers
        self._server = LocalPostgres(version, settings=SETTINGS)
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._server.start)
            await init(self.dsn, self._bootstrap_servers, slot="walferry")
            self._connection = await psycopg.AsyncConnection.connect(
                self.dsn, autocommit=True
            )
            await self.execute("SELECT pg_drop_replication_slot('walferry')")
            await self.execute(NOISE_TABLE)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and stop the server; harmless when repeated."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()
        await asyncio.to_thread(self._server.close)

    @property
    def dsn(self) -> str:
        """The database's address."""
        return self._server.dsn()

    @property
    def port(self) -> int:
        """The server's port on loopback."""
        return self._server.port

    @property
    def release(self) -> str:
        """The server's release, like 18.6."""
        return self._server.server_version

    def program(self, name: str) -> Path:
        """Return the path of one of this release's programs."""
        programs = postgres_programs(self.version, unprivileged(), lambda _text: None)
        return programs / name

    async def execute(self, statement: str, *values: object) -> Any:
        """Run a statement; return the first column of its first row, or None."""
        assert self._connection is not None
        async with asyncio.timeout(_STATEMENT_DEADLINE_S):
            cursor = await self._connection.execute(statement, values or None)
            row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    @asynccontextmanager
    async def slot(self, name: str, plugin: str) -> AsyncIterator[None]:
        """Have a slot from here to the end of the block."""
        await self.execute(
            "SELECT pg_create_logical_replication_slot(%s, %s)", name, plugin
        )
        try:
            yield
        finally:
            await self.drop(name)

    @asynccontextmanager
    async def copied_slot(self, name: str, of: str) -> AsyncIterator[None]:
        """Have a copy of a slot, at its position, to the end of the block."""
        await self.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", of, name)
        try:
            yield
        finally:
            await self.drop(name)

    async def drop(self, slot: str) -> None:
        """Drop a slot as soon as nobody reads it any more."""
        async with asyncio.timeout(_DROP_DEADLINE_S):
            while True:
                if await self.reader_of(slot) is None:
                    break
                await asyncio.sleep(_POLL_S)
        await self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            slot,
        )

    async def reader_of(self, slot: str) -> int | None:
        """Return the process that decodes this slot's WAL; None while nobody reads."""
        pid = await self.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", slot
        )
        return None if pid is None else int(pid)

    async def fill(self, events: Events) -> str:
        """Commit the events into an emptied outbox; return the LSN behind them."""
        await self.execute("TRUNCATE public.outbox, public.noise")
        # The WAL of the load before is not needed any more.
        await self.execute("CHECKPOINT")
        for statement in events.statements():
            await self.execute(statement)
        return await self.lsn()

    async def lsn(self) -> str:
        """Return where the WAL ends now."""
        return str(await self.execute("SELECT pg_current_wal_lsn()"))

    async def wal_between(self, begin: str, end: str) -> int:
        """Return the bytes between two positions."""
        return int(await self.execute("SELECT pg_wal_lsn_diff(%s, %s)", end, begin))
