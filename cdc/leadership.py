"""One relay of a name at a time: a lock that the server itself gives up.

The lock is held on the replication connection. A holder that freezes loses it: before
the stream by ``idle_session_timeout``, in the stream by ``wal_sender_timeout``; on an
ordinary connection it would keep it for as long as its machine answers keepalives.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from psycopg import sql

from slots.connect import translated
from slots.errors import SlotBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

IDLE_LIMIT_S: Final = 60
"""Between taking the lock and the next word on that connection."""

LOCK_PATIENCE_S: Final = 5.0
"""How long an operator's command tries: a parked relay looks again so often."""

_PAUSE_S: Final = 0.2

_HOLDER: Final = """
SELECT a.pid, a.application_name, a.client_addr::text
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted
   AND l.classid = {high}::oid AND l.objid = {low}::oid
   AND l.database = (SELECT oid FROM pg_catalog.pg_database
                      WHERE datname = pg_catalog.current_database())
"""


def key_of(name: str) -> int:
    """Return the lock's key, a signed 64-bit number made from the relay's name."""
    digest = hashlib.sha256(f"walferry {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def lead(
    line: AsyncConnection[TupleRow], name: str, *, patience_s: float = 0.0
) -> None:
    """Take the lock of a relay's name on a replication connection.

    It is let go when the connection ends.

    Args:
        line: does not stream yet.
        name: of the relay.
        patience_s: try for so long: a relay that is parked, or pausing after a failure,
            has it for moments only.

    Raises:
        SlotBusy: another process has it; the message says which.

    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return await _try(line, name)
        except SlotBusy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _try(line: AsyncConnection[TupleRow], name: str) -> None:
    number = key_of(name)
    key = sql.Literal(number)
    with translated():
        await line.execute(
            sql.SQL("SET idle_session_timeout = {}").format(IDLE_LIMIT_S * 1000)
        )
        cursor = await line.execute(
            sql.SQL("SELECT pg_catalog.pg_try_advisory_lock({})").format(key)
        )
        row = await cursor.fetchone()
        if row is not None and row[0]:
            return
        cursor = await line.execute(_holder(number))
        holder = await cursor.fetchone()
    pid, application, address = holder or (None, None, None)
    raise SlotBusy(
        f"relay {name} runs already: pid {pid} ({application or 'unnamed'},"
        f" {address or 'local'})",
        hint="it is left alone; this one takes over when it is gone",
    )


@asynccontextmanager
async def holding(line: AsyncConnection[TupleRow]) -> AsyncIterator[None]:
    """Keep the lock while the block runs, by a word now and then."""

    async def speak() -> None:
        while True:
            await asyncio.sleep(IDLE_LIMIT_S / 4)
            with translated():
                await line.execute("SELECT 1")

    speaking = asyncio.create_task(speak(), name="lock")
    try:
        yield
    finally:
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


def _holder(number: int) -> sql.Composed:
    """Return the query for who holds the lock, whose halves pg_locks shows as oids."""
    half = (1 << 32) - 1
    return sql.SQL(_HOLDER).format(high=number >> 32 & half, low=number & half)
