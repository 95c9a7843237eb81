"""A private server on which slots get into trouble, and the command that looks."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from pydantic import SecretStr

from slots import catalog
from slots.cli.command import run
from slots.connect import Target, connect
from slots.state import Level, Limits
from slots.watch import Watch

if TYPE_CHECKING:
    import pytest
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.local import LocalPostgres
    from slots.state import Slot
    from slots.watch import View

# Small WAL files, so that megabytes are enough to get a slot into trouble.
SEGMENT_MB = 1
SETTINGS = {
    "max_prepared_transactions": "5",
    "max_wal_size": "256MB",
    "min_wal_size": "2MB",
    "max_slot_wal_keep_size": "512MB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
}


class Stage:
    """A server, a superuser's connection to it, and what is started on it."""

    def __init__(self, server: LocalPostgres) -> None:
        self.server = server
        self.target = self.as_role("postgres")
        self._stack = AsyncExitStack()
        self._writing: list[AsyncConnection[TupleRow]] = []
        self.admin: AsyncConnection[TupleRow]

    async def __aenter__(self) -> Self:
        self.admin = await self.session()
        await self.admin.execute("CREATE TABLE public.t (i int)")
        await self.admin.execute("CREATE PUBLICATION p FOR TABLE public.t")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()
        if self.server.is_running:
            async with await connect(self.target) as admin:
                await _clear(admin)

    def as_role(self, role: str, database: str = "postgres") -> Target:
        dsn = self.server.dsn(database, role)
        return Target(dsn=SecretStr(dsn), application_name="stage")

    async def session(self, database: str = "postgres") -> AsyncConnection[TupleRow]:
        """Open a session that lives as long as the stage."""
        opened = await connect(self.as_role("postgres", database))
        self._stack.push_async_callback(opened.close)
        return opened

    async def consumer(self, slot: str) -> AsyncConnection[TupleRow]:
        """Connect a consumer that confirms nothing."""
        target = Target(dsn=self.target.dsn, application_name="sleepy")
        opened = await connect(target, replication=True)
        self._stack.push_async_callback(opened.close)
        await opened.execute(
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0"
            " (proto_version '1', publication_names 'p')".encode()
        )
        return opened

    async def begin_write(
        self, database: str = "postgres"
    ) -> AsyncConnection[TupleRow]:
        """Leave a write transaction open."""
        session = await self.session(database)
        await session.execute("CREATE TABLE IF NOT EXISTS public.t (i int)")
        await session.execute("BEGIN")
        await session.execute("INSERT INTO public.t VALUES (1)")
        self._writing.append(session)
        return session

    async def end_writes(self) -> None:
        """End the write transactions that were left open."""
        for session in self._writing:
            await session.execute("ROLLBACK")
        self._writing.clear()

    async def write(self, megabytes: float) -> None:
        """Write WAL that belongs to no table."""
        message = "pg_catalog.pg_logical_emit_message(false, 'x', repeat('y', 262144))"
        series = f"pg_catalog.generate_series(1, {megabytes * 4:.0f})"
        statement = f"SELECT pg_catalog.count({message}) FROM {series}"
        await self.admin.execute(statement.encode())

    async def confirm_all(self, slot: str) -> None:
        """Confirm everything, as a consumer that keeps up does."""
        position = await catalog.wal_position(self.admin)
        await catalog.advance_slot(self.admin, slot, position)

    async def let_go(self, slot: str) -> None:
        """Confirm everything, and have the server give the WAL free.

        It does so with a running-xacts record, and making a slot writes one.
        """
        await catalog.create_slot(self.admin, "passing", timeout_s=10)
        await catalog.drop_slot(self.admin, "passing")
        await self.confirm_all(slot)

    async def slot(self, name: str) -> Slot:
        found = await catalog.get_slot(self.admin, name)
        assert found is not None
        return found

    def watch(self, *names: str, **limits: str) -> Watched:
        return Watched(self, Limits.of({"no_wal_limit": "off"} | limits), names)


async def _clear(admin: AsyncConnection[TupleRow]) -> None:
    """Leave the server as it was made, for the next stage on it."""
    await admin.execute(
        "SELECT pg_catalog.pg_terminate_backend(pid, 10000)"
        " FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid()"
        " AND backend_type IN ('client backend', 'walsender')"
    )
    for name in await _names(admin, "SELECT gid FROM pg_catalog.pg_prepared_xacts"):
        await admin.execute(f"ROLLBACK PREPARED '{name}'".encode())
    for slot in await catalog.list_slots(admin):
        await catalog.drop_slot(admin, slot.name)
    await admin.execute("DROP PUBLICATION IF EXISTS p")
    await admin.execute("DROP TABLE IF EXISTS public.t")
    await admin.execute("DROP DATABASE IF EXISTS other")
    roles = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolname !~ '^pg_|^postgres$'"
    for name in await _names(admin, roles):
        await admin.execute(f"DROP ROLE {name}".encode())


async def _names(admin: AsyncConnection[TupleRow], query: str) -> list[str]:
    return [row[0] for row in await (await admin.execute(query.encode())).fetchall()]


class Watched:
    """A watch that a test turns by hand."""

    def __init__(self, stage: Stage, limits: Limits, names: tuple[str, ...]) -> None:
        self.watch = Watch(stage.target, limits=limits, names=names)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.watch.close()

    async def look(self) -> View:
        return await self.watch.poll()

    async def up(self) -> dict[str, Level]:
        """Look, and return the alarms that are up."""
        view = await self.look()
        return {alarm.kind.value: alarm.level for alarm in view.alarms}


class Command:
    """The ``slots`` command, run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = ""
        self.err = ""

    async def __call__(self, target: Target | None, *arguments: str) -> int:
        given = list(arguments)
        if target is not None:
            given += ["--dsn", target.dsn.get_secret_value()]
        self._capsys.readouterr()
        code = await asyncio.to_thread(run, given)
        self.out, self.err = self._capsys.readouterr()
        return code

    async def json(self, target: Target, *arguments: str) -> Any:
        code = await self(target, *arguments, "--json", "--sample", "0")
        assert code == 0, self.err
        return json.loads(self.out)

    async def why(self, target: Target, slot: str) -> dict[str, Any]:
        """Return the causes that ``slots why`` names, by who they are."""
        document = await self.json(target, "why", slot)
        return {cause["who"]: cause for cause in document["causes"]}
