"""Make a slot together with a snapshot that shows what was committed before it.

What the snapshot shows and what the slot sends make the whole, without a gap and
without an overlap. Only the replication command can do it: the SQL function exports
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from psycopg import errors as pg_errors
from psycopg import sql

from slots.catalog.changes import drop_slot, permitted, refuse_failover
from slots.catalog.reading import read
from slots.connect import answer_of, translated
from slots.errors import ServerRefused, SlotError, SlotNotReady
from slots.lsn import Lsn
from slots.state.causes import describe_blocker

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

Answer = TypeVar("Answer")

_OPTIONS_SINCE: Final = 150000
"""Before, the snapshot's word stands alone and there are no parentheses."""

_NAMED: Final = 5
"""The oldest transactions are enough to act on."""

_ANSWER_LIMIT_S: Final = 10.0


class Exported(NamedTuple):
    """A slot, and the snapshot of everything that it will not send.

    Attributes:
        consistent_point: where the slot begins.
        snapshot_name: for ``SET TRANSACTION SNAPSHOT``; good until the next command on
            the connection that exported it, or its end. Who has imported it keeps it.

    """

    consistent_point: Lsn
    snapshot_name: str


async def create_slot_with_snapshot(
    line: AsyncConnection[TupleRow],
    connection: AsyncConnection[TupleRow],
    name: str,
    *,
    plugin: str,
    failover: bool = False,
    timeout_s: float,
) -> Exported:
    """Make a logical slot and export the snapshot of its beginning.

    That waits for every write transaction of the cluster that is open, prepared ones
    included. Being cancelled, or out of time, leaves no slot behind.

    Args:
        line: a replication connection that does not stream; it must rest from then on
            until the snapshot is imported.
        connection: an ordinary one to the same server.
        name: of the slot.
        plugin: the output plugin.
        failover: have standbys copy it (17 and later).
        timeout_s: how long it may wait.

    Raises:
        SlotNotReady: the time was up; the hint names the transactions waited for. Both
            connections can be used on.
        SlotError: the server said no, or has gone.

    """
    refuse_failover(line, wanted=failover)
    query = _command(line, name, plugin, failover=failover)
    making = asyncio.create_task(_made(line, query), name="slot_creation")
    blockers, began_at = "", time.monotonic()
    try:
        await asyncio.wait({making}, timeout=timeout_s)
        if not making.done():
            blockers = await _bounded(_blockers(connection, began_at), connection)
            await _stop(line, making)
    except BaseException:
        await _undo(line, connection, name, making)
        raise
    try:
        # It may have become ready at the last moment; then nothing was in vain.
        return making.result()
    except ServerRefused as exc:
        if exc.sqlstate != pg_errors.QueryCanceled.sqlstate or not blockers:
            raise
        raise SlotNotReady(
            f"slot {name} was not ready within {timeout_s:g} s: it waits for every"
            " write transaction that was open when it began",
            hint=f"{blockers}; end them (SELECT pg_terminate_backend(pid), or COMMIT"
            " PREPARED or ROLLBACK PREPARED in their database), then try again",
        ) from exc


def _command(
    line: AsyncConnection[TupleRow], name: str, plugin: str, *, failover: bool
) -> sql.Composed:
    form = "CREATE_REPLICATION_SLOT {} LOGICAL {} EXPORT_SNAPSHOT"
    if line.info.server_version >= _OPTIONS_SINCE:
        more = ", FAILOVER true" if failover else ""
        form = f"CREATE_REPLICATION_SLOT {{}} LOGICAL {{}} (SNAPSHOT 'export'{more})"
    return sql.SQL(form).format(sql.Identifier(name), sql.Identifier(plugin))


async def _made(line: AsyncConnection[TupleRow], query: sql.Composed) -> Exported:
    with permitted():
        row = await (await line.execute(query)).fetchone()
    if row is None or row[1] is None or row[2] is None:
        raise ServerRefused("the server made a slot and named no snapshot of it")
    return Exported(Lsn.parse(row[1]), row[2])


async def _blockers(connection: AsyncConnection[TupleRow], began_at: float) -> str:
    """Name what was open when the wait began; all of it where ages are hidden."""
    # Before the reading, whose ages are a little older: rather a name too many.
    waited_s = time.monotonic() - began_at
    reading = await read(connection)
    old = [
        one for one in reading.blockers if one.open_s is None or one.open_s >= waited_s
    ]
    if not old:
        return "the last of them has ended just now"
    rest = f"; {len(old) - _NAMED} more" if len(old) > _NAMED else ""
    return "; ".join(describe_blocker(one) for one in old[:_NAMED]) + rest


async def _stop(
    line: AsyncConnection[TupleRow], making: asyncio.Task[Exported]
) -> None:
    """Have the server give up making it, and wait for the end of that.

    A line that is only cut is not missed by a server that waits for a transaction: the
    half-made slot would stay, and keep WAL, for as long as that lasts.
    """
    try:
        with translated():
            await line.cancel_safe(timeout=_ANSWER_LIMIT_S)
    finally:
        await _bounded(_end_of(making), line)


async def _undo(
    line: AsyncConnection[TupleRow],
    connection: AsyncConnection[TupleRow],
    name: str,
    making: asyncio.Task[Exported],
) -> None:
    """Leave nothing behind; what cannot be undone beside a dead server is not."""
    with contextlib.suppress(SlotError):
        if not making.done():
            await _stop(line, making)
        if making.exception() is None:
            await _bounded(drop_slot(connection, name), connection)


async def _end_of(making: asyncio.Task[Exported]) -> None:
    await asyncio.gather(making, return_exceptions=True)


async def _bounded(
    question: Coroutine[Any, Any, Answer], connection: AsyncConnection[TupleRow]
) -> Answer:
    info = connection.info
    where = f"{info.host}:{info.port}/{info.dbname}"
    return await answer_of(question, connection, limit_s=_ANSWER_LIMIT_S, where=where)
