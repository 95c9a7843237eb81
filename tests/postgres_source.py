"""A database of one test's own, with an outbox and a slot on demand."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Protocol, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.proxy import Proxy

OUTBOX = """
CREATE TABLE public.outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype text NOT NULL,
    aggregateid text NOT NULL,
    type text NOT NULL,
    payload jsonb,
    headers jsonb,
    created_at timestamptz NOT NULL DEFAULT now()
)
"""
PUBLICATION = "walferry"
_PUBLISH = "publish = 'insert', publish_via_partition_root = true"


class Server(Protocol):
    """A Postgres server, ours or the developer's."""

    def dsn(self, dbname: str = ...) -> str:
        """Return the address of a database."""
        ...


class DevelopersServer:
    """A server that runs already; the tests only make databases and slots in it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, dbname: str = "postgres") -> str:
        """Return the address of a database."""
        return make_conninfo(self._dsn, dbname=dbname)


class Source:
    """A fresh database, a superuser's connection to it, and names for the relay.

    Attributes:
        dsn: the database's address, without a password where the server trusts us.
        plugin: the output plugin of this test.
        version: the server's major version.
        slot: a slot name of this test's own.
        connection: autocommit; for transactions, ``connection.transaction()``.

    """

    def __init__(self, server: Any, version: str, plugin: str) -> None:
        # Any: a test that wants the launcher's methods knows that it has a launcher.
        self.server = server
        self.version = version
        self.plugin = plugin
        tag = uuid.uuid4().hex[:12]
        self.database = f"t_{tag}"
        self.slot = f"walferry_{tag}"
        self.publication = PUBLICATION
        self.dsn: str = server.dsn(self.database)
        self._connection: psycopg.AsyncConnection[DictRow] | None = None

    async def __aenter__(self) -> Self:
        async with await connect(self.server.dsn("postgres")) as admin:
            await admin.execute(f'CREATE DATABASE "{self.database}"')
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.disconnect()
        async with await connect(self.server.dsn("postgres")) as admin:
            await drop_slots(admin, self.database)
            await admin.execute(f'DROP DATABASE "{self.database}" WITH (FORCE)')

    async def disconnect(self) -> None:
        """Close the test's own connection."""
        if self._connection is not None:
            await self._connection.close()

    async def open(self) -> psycopg.AsyncConnection[DictRow]:
        """Return the test's own connection, opened again when the server cut it."""
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self.dsn)
        return self._connection

    async def execute(self, sql: str, *params: object) -> None:
        """Run a statement and commit it."""
        connection = await self.open()
        await connection.execute(sql.encode(), params or None)

    async def fetch(self, sql: str, *params: object) -> list[DictRow]:
        """Run a query and return its rows by column name."""
        connection = await self.open()
        return await (await connection.execute(sql.encode(), params or None)).fetchall()

    async def value(self, sql: str, *params: object) -> Any:
        """Run a query and return the first column of its first row."""
        return next(iter((await self.fetch(sql, *params))[0].values()))

    async def create_outbox(self, table: str = OUTBOX, name: str = "outbox") -> None:
        """Make the outbox table, its publication and the slot."""
        await self.execute(table)
        await self.execute(
            f"CREATE PUBLICATION {self.publication} FOR TABLE {name} WITH ({_PUBLISH})"
        )
        await self.create_slot()

    async def create_slot(self) -> None:
        """Make this test's slot with this test's plugin."""
        await self.fetch(
            "SELECT pg_create_logical_replication_slot(%s, %s)", self.slot, self.plugin
        )

    async def drop_slot(self) -> None:
        """Drop this test's slot, once nobody holds it."""
        await self.slot_at_rest()
        await self.fetch("SELECT pg_drop_replication_slot(%s)", self.slot)

    async def advance_slot(self) -> None:
        """Move this test's slot to the end of the WAL, as a stranger would."""
        await self.slot_at_rest()
        await self.fetch(
            "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", self.slot
        )

    async def slot_row(self) -> DictRow | None:
        """Return this test's row of pg_replication_slots, or None."""
        query = "SELECT * FROM pg_replication_slots WHERE slot_name = %s"
        return next(iter(await self.fetch(query, self.slot)), None)

    async def slot_at_rest(self, deadline_s: float = 10.0) -> DictRow | None:
        """Return this test's row once nobody holds the slot.

        A walsender outlives its client by a moment: until then the row is not one to
        compare with, and the slot is nobody else's to drop, move or read.
        """

        async def at_rest() -> tuple[DictRow | None]:
            row = await self.slot_row()
            assert row is None or not row["active"]
            return (row,)

        (row,) = await eventually(at_rest, deadline_s, what=f"nobody holds {self.slot}")
        return row

    async def insert_event(
        self,
        aggregatetype: str = "order",
        key: str = "1",
        *,
        type: str = "created",  # noqa: A002 - the column's name
        payload: object = None,
        headers: Mapping[str, object] | None = None,
    ) -> str:
        """Insert one row into the default outbox and return its id."""
        identifier = await self.value(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers)"
            " VALUES (%s, %s, %s, %s, %s) RETURNING id::text",
            aggregatetype,
            key,
            type,
            json.dumps(payload),
            None if headers is None else json.dumps(headers),
        )
        return str(identifier)

    def dsn_through(self, proxy: Proxy) -> str:
        """Return the database's address by way of a proxy."""
        return make_conninfo(self.dsn, host=proxy.host, port=proxy.port)

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where the server itself listens."""
        parts = conninfo_to_dict(self.dsn)
        return str(parts["host"]), int(parts.get("port") or 5432)


async def connect(dsn: str) -> psycopg.AsyncConnection[DictRow]:
    """Open an autocommit connection whose rows are dicts."""
    return await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, row_factory=dict_row
    )


async def drop_slots(admin: psycopg.AsyncConnection[DictRow], database: str) -> None:
    """Drop every slot of a database, whoever streams from it."""

    async def none_left() -> bool:
        await admin.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = %s AND active",
            [database],
        )
        await admin.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = %s AND NOT active",
            [database],
        )
        left = await admin.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = %s", [database]
        )
        return await left.fetchone() is None

    await eventually(none_left, what=f"the slots of {database} are dropped")
