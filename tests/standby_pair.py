"""A primary and its standby, and a relay that knows both addresses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg.conninfo import make_conninfo

from slots.lsn import Lsn
from tests.file_relay import FileRelay
from tests.postgres_source import Source, connect
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local import LocalPostgres

STANDBY_SLOT = "standby_1"
"""Of the primary, for its standby: physical."""

_SYNCS = {"hot_standby_feedback": "on", "primary_slot_name": STANDBY_SLOT}
_SYNC_DEADLINE_S = 90.0


class StandbyPair:
    """A primary, a standby that streams from it, and a relay between them and a file.

    The relay is given both hosts and asks for the one that takes writes, and so does
    the test's own connection.

    Attributes:
        primary: the server that is killed.
        shop: the relay.
        source: its database, on whichever server takes writes.

    """

    def __init__(self, primary: LocalPostgres, path: Path, plugin: str) -> None:
        self.primary = primary
        self._standby: LocalPostgres | None = None
        self.source = Source(primary, primary.version, plugin)
        self.shop = FileRelay(source=self.source, path=path)

    async def __aenter__(self) -> Self:
        try:
            await self._make()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.source.disconnect()
        if self._standby is not None:
            await asyncio.to_thread(self._standby.close)

    async def _make(self) -> None:
        await self.source.__aenter__()
        await self.source.execute(
            "SELECT pg_create_physical_replication_slot(%s, true)", STANDBY_SLOT
        )
        self._standby = await asyncio.to_thread(lambda: self.primary.standby(**_SYNCS))
        self.source.dsn = self.both
        await asyncio.to_thread(self.standby.start)
        code, _out, err = await self.shop.cdc("init")
        assert code == 0, err

    @property
    def standby(self) -> LocalPostgres:
        """The server that is promoted."""
        assert self._standby is not None
        return self._standby

    @property
    def both(self) -> str:
        """The address of either server, the old primary first."""
        ports = f"{self.primary.port},{self.standby.port}"
        return make_conninfo(
            self.primary.dsn(self.source.database),
            host="127.0.0.1,127.0.0.1",
            port=ports,
            target_session_attrs="read-write",
        )

    def dsn_of(self, server: LocalPostgres) -> str:
        """Return the address of the relay's database on one of the servers."""
        return server.dsn(self.source.database)

    async def ask(self, server: LocalPostgres, sql: str, *params: object) -> Any:
        """Return the first value that one of the servers answers, None for no row."""
        async with await connect(self.dsn_of(server)) as connection:
            cursor = await connection.execute(sql.encode(), params or None)
            return next(iter((await cursor.fetchone() or {"": None}).values()))

    async def follow(self) -> None:
        """Have the standby copy slots by itself, and wait for a usable copy."""
        self.standby.set(sync_replication_slots="on")
        self.standby.reload()
        await self._copied("SELECT")

    async def copy_slot(self) -> None:
        """Have the standby copy the slot as it is now, once, and no more."""
        await self._copied("SELECT pg_sync_replication_slots()")

    async def carry_slot(self) -> None:
        """Put the slot into the standby, as the primary's disk has it."""
        await self.caught_up()
        await asyncio.to_thread(self.standby.stop)
        self.standby.take_slot(self.primary, self.source.slot)
        await asyncio.to_thread(self.standby.start)

    async def copied_at(self) -> Lsn:
        """Return where the standby's copy of the slot is."""
        query = (
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
            " WHERE slot_name = %s"
        )
        return Lsn.parse(await self.ask(self.standby, query, self.source.slot))

    async def caught_up(self) -> None:
        """Wait until the standby has replayed what the primary has written."""
        written = await self.ask(self.primary, "SELECT pg_current_wal_lsn()::text")
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        await eventually(
            lambda: self.ask(self.standby, query, written), what="replayed everything"
        )

    async def lag(self) -> Lsn:
        """Stop the standby; return where its WAL ends."""
        await self.caught_up()
        query = "SELECT pg_last_wal_receive_lsn()::text"
        received = Lsn.parse(await self.ask(self.standby, query))
        await asyncio.to_thread(self.standby.stop)
        return received

    async def fail_over(self) -> None:
        """Kill the primary and promote the standby, as far as that has come."""
        await self.source.disconnect()
        await asyncio.to_thread(self.primary.kill)
        await asyncio.to_thread(self.standby.start)
        await asyncio.to_thread(self.standby.promote)

    async def write_idle(self, kilobytes: int) -> Lsn:
        """Write WAL that has no events; return where it ends."""
        await self.source.execute("CREATE TABLE IF NOT EXISTS public.other (t text)")
        for _ in range(kilobytes):
            await self.source.execute(
                "INSERT INTO public.other VALUES (repeat('x', 1000))"
            )
        return await self.written()

    async def stored(self, last: str) -> None:
        """Wait until the stored position says that this event was the last one."""

        def is_stored() -> bool:
            anchor = self.shop.position().anchor
            return anchor is not None and anchor.event_id == last

        await eventually(is_stored, what=f"event {last} is the anchor")

    async def passed(self, lsn: Lsn) -> None:
        """Wait until the stored position has come to here."""
        await eventually(
            lambda: self.shop.position().end_lsn >= lsn, what=f"stored up to {lsn}"
        )

    async def sampled_at(self, lsn: Lsn) -> None:
        """Wait until a sample from behind this point is stored."""

        async def is_stored() -> bool:
            await self.write_idle(1)
            return any(one.lsn > lsn for one in self.shop.position().samples)

        await eventually(is_stored, what=f"a sample from behind {lsn} is stored")

    async def written(self) -> Lsn:
        """Return where the WAL of the server that takes writes ends."""
        return Lsn.parse(await self.source.value("SELECT pg_current_wal_lsn()::text"))

    async def is_set(self, name: str) -> bool:
        """Tell whether the primary has taken over what was set."""
        return bool(await self.ask(self.primary, f"SHOW {name}"))

    async def lag_bytes(self) -> int:
        """Return how much WAL of the primary the relay has not confirmed."""
        query = (
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn"
            " FROM pg_replication_slots WHERE slot_name = %s"
        )
        return int(await self.ask(self.primary, query, self.source.slot))

    async def switch(self) -> Lsn:
        """Return where the promoted standby left timeline 1."""
        path = "pg_wal/00000002.history"
        text = await self.ask(self.standby, "SELECT pg_read_file(%s)", path)
        return Lsn.parse(str(text).split()[1])

    async def _copied(self, statement: str) -> None:
        """Poke primary and standby until the copy of the slot is one to be used.

        It is kept from the moment on at which the primary's slot has passed what the
        standby has (slotsync.c), which takes a record of running transactions.
        """
        usable = (
            "SELECT synced AND NOT temporary FROM pg_replication_slots"
            " WHERE slot_name = %s"
        )

        async def is_usable() -> bool:
            await self.ask(self.primary, "SELECT pg_log_standby_snapshot()::text")
            try:
                await self.ask(self.standby, statement)
            except psycopg.errors.ObjectNotInPrerequisiteState:
                return False
            return bool(await self.ask(self.standby, usable, self.source.slot))

        await eventually(is_usable, _SYNC_DEADLINE_S, what="a usable copy of the slot")
