"""Make, drop, move and copy slots; each refuses what would be lost without a word."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from slots.catalog.reading import get_slot
from slots.connect import translated
from slots.errors import PermissionDenied, ServerRefused, SlotMissing, SlotNotReady
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from slots.state import Slot

_FAILOVER_SINCE: Final = 170000
_REPLICATION: Final = (
    "ALTER ROLE ... REPLICATION lets a role make and move slots (Amazon RDS and Aurora:"
    " GRANT rds_replication TO ...)"
)
_SIGNAL: Final = "GRANT pg_signal_backend TO ... lets a role end sessions of others"


async def create_slot(  # noqa: PLR0913 - one argument for each of the server's own
    connection: AsyncConnection[TupleRow],
    name: str,
    *,
    plugin: str | None = "pgoutput",
    two_phase: bool = False,
    failover: bool = False,
    temporary: bool = False,
    timeout_s: float = 0.0,
) -> Lsn:
    """Make a slot; return where it begins.

    A logical slot waits for every write transaction of the cluster that is open, and
    while it waits it pins WAL already.

    Args:
        connection: of the database whose changes the slot decodes.
        name: of the slot.
        plugin: None makes a physical slot, which keeps WAL from now on.
        two_phase: send prepared transactions when they are prepared.
        failover: have standbys copy it (17 and later).
        temporary: it goes with the connection.
        timeout_s: give up after that long; 0 waits for ever.

    Raises:
        SlotNotReady: the time was up; nothing is left behind.
        SlotError: the server said no.

    """
    refuse_failover(connection, wanted=failover)
    if plugin is None:
        query = sql.SQL(
            "SELECT lsn::text FROM"
            " pg_catalog.pg_create_physical_replication_slot({}, true, {})"
        ).format(name, temporary)
    else:
        options = [name, plugin, temporary, two_phase]
        options += [True] if failover else []
        query = sql.SQL(
            "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot({})"
        ).format(sql.SQL(", ").join(sql.Literal(option) for option in options))
    try:
        with permitted():
            await _set_timeout(connection, timeout_s)
            return await _position(connection, query)
    except ServerRefused as exc:
        if exc.sqlstate != pg_errors.QueryCanceled.sqlstate:
            raise
        raise SlotNotReady(
            f"slot {name} was not ready within {timeout_s:g} s: it waits for every"
            " write transaction that was open when it began"
        ) from exc
    finally:
        if not connection.closed:
            with translated():
                await _set_timeout(connection, 0.0)


async def drop_slot(connection: AsyncConnection[TupleRow], name: str) -> None:
    """Drop a slot that nobody streams from, and with it what it kept.

    Raises:
        SlotMissing: there is no such slot.
        SlotBusy: somebody streams from it (55006).

    """
    query = sql.SQL("SELECT pg_catalog.pg_drop_replication_slot({})").format(name)
    with permitted():
        await connection.execute(query)


async def terminate_consumer(connection: AsyncConnection[TupleRow], slot: Slot) -> None:
    """End the session that streams from a slot.

    Raises:
        PermissionDenied: the role is neither its owner nor in pg_signal_backend.

    """
    query = "SELECT pg_catalog.pg_terminate_backend(%s)"
    with permitted(_SIGNAL):
        await connection.execute(query, (slot.active_pid,))


async def advance_slot(
    connection: AsyncConnection[TupleRow], name: str, position: Lsn
) -> Lsn:
    """Move a slot's confirmed position forward; return where it is then.

    A position at or below the present one leaves it where it is; one beyond the end of
    the WAL moves it there. Everything up to the position will never be sent: pass
    nothing that is not delivered, or given up.

    Raises:
        SlotMissing: there is no such slot.
        SlotBusy: somebody streams from it (55006).
        ServerRefused: it is lost (55000), or a right is missing.

    """
    slot = await existing_slot(connection, name)
    if slot.position is not None and position <= slot.position:
        return slot.position
    query = sql.SQL(
        "SELECT end_lsn::text FROM pg_catalog.pg_replication_slot_advance({}, {})"
    ).format(name, str(position))
    with permitted():
        return await _position(connection, query)


async def copy_slot(
    connection: AsyncConnection[TupleRow],
    source: str,
    target: str,
    *,
    plugin: str | None = None,
) -> Lsn:
    """Make another slot at the position of one; return that position.

    The copy of a logical slot may decode with another plugin: a move without a gap.

    Raises:
        SlotMissing: there is no such source.
        ServerRefused: the source is lost (55000), or the plugin cannot be loaded.

    """
    slot = await existing_slot(connection, source)
    options: list[object] = [source, target, slot.temporary]
    if slot.is_logical:
        options += [plugin] if plugin else []
        query = sql.SQL(
            "SELECT lsn::text FROM pg_catalog.pg_copy_logical_replication_slot({})"
        )
    else:
        query = sql.SQL(
            "SELECT lsn::text FROM pg_catalog.pg_copy_physical_replication_slot({})"
        )
    with permitted():
        await connection.execute(
            query.format(sql.SQL(", ").join(sql.Literal(one) for one in options))
        )
    # The function names no position for a physical slot.
    copy = await existing_slot(connection, target)
    return copy.position or ZERO


async def existing_slot(connection: AsyncConnection[TupleRow], name: str) -> Slot:
    """Return a slot.

    Raises:
        SlotMissing: there is none of that name.

    """
    slot = await get_slot(connection, name)
    if slot is None:
        raise SlotMissing(f"slot {name} does not exist", hint="`slots list` shows all")
    return slot


def refuse_failover(connection: AsyncConnection[TupleRow], *, wanted: bool) -> None:
    """Raise ServerRefused where a failover slot is wanted of a server before 17."""
    if wanted and connection.info.server_version < _FAILOVER_SINCE:
        raise ServerRefused(
            "failover slots are of Postgres 17 and later",
            hint="make it without failover; on older servers the high-availability tool"
            " copies slots (Patroni: permanent slots)",
        )


@contextmanager
def permitted(remedy: str = _REPLICATION) -> Iterator[None]:
    """Turn the driver's errors into ours, and say how a missing right is given."""
    try:
        with translated():
            yield
    except PermissionDenied as exc:
        exc.hint = exc.hint or remedy
        raise


async def _position(connection: AsyncConnection[TupleRow], query: sql.Composed) -> Lsn:
    cursor = await connection.execute(query)
    row = await cursor.fetchone()
    if row is None or row[0] is None:
        raise ServerRefused("the server named no position")
    return Lsn.parse(row[0])


async def _set_timeout(connection: AsyncConnection[TupleRow], seconds: float) -> None:
    await connection.execute(
        sql.SQL("SET statement_timeout = {}").format(round(seconds * 1000))
    )
