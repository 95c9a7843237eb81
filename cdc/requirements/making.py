"""Make what a run needs and does not find; never drop, never touch what is there.

The one thing changed in place is a publication that lacks a wanted table: the table is
added to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors
from psycopg import sql

from cdc.errors import RequirementMissing
from cdc.finding import Status
from cdc.requirements import access, statements
from cdc.requirements.coverage import coverage
from cdc.requirements.near_match import is_twin
from cdc.requirements.server import demands, more_room, read_server
from cdc.requirements.slot import slot_demands
from cdc.requirements.start import requirement_missing
from cdc.requirements.tables import read_candidates, read_tables
from slots.catalog import create_slot, get_slot, read
from slots.connect import connect, translated
from slots.errors import PermissionDenied, SlotError, SlotNotReady

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from cdc.outbox import TableName
    from cdc.requirements.server import Server
    from cdc.requirements.tables import Table
    from cdc.requirements.wanted import Wanted
    from slots.connect import Target
    from slots.state import Blocker

FAILOVER_SINCE: Final = 170000
"""From here on standbys can copy a slot, which costs nothing where none does."""

SLOT_TIMEOUT_S: Final = 30.0
"""A slot waits for every write transaction that is open when it is made."""

_LOCK_TIMEOUT_S: Final = 10
"""For DDL: longer than that is somebody's open transaction, not a busy moment."""


async def init(
    target: Target,
    wanted: Wanted,
    *,
    with_slot: bool = True,
    slot_timeout_s: float = SLOT_TIMEOUT_S,
) -> list[str]:
    """Make outbox tables, publication and slot where missing; say what was made.

    Run again after a failure, it goes on where it stopped.

    Raises:
        RequirementMissing: a right, a setting or a table of the user's own is missing,
            or something that exists does not fit; nothing that exists was changed.

    """
    async with await connect(target, timeout_s=access.CONNECT_TIMEOUT_S) as conn:
        with translated():
            server = await read_server(conn)
            _refuse(demands(server, wanted))
            slot = await get_slot(conn, wanted.slot)
            if slot is not None:
                _refuse(slot_demands(slot, server, wanted))
            await conn.execute(
                sql.SQL("SET lock_timeout = {}").format(f"{_LOCK_TIMEOUT_S}s")
            )
            done = await _make_tables(conn, wanted, server)
            if wanted.uses_publication:
                done += await _make_publication(conn, wanted, server)
            tables = await read_tables(conn, wanted, server.version)
            _refuse(coverage(tables, wanted, server.version, existing=()))
            if slot is None and with_slot:
                await _make_slot(conn, wanted, server, slot_timeout_s)
                done.append(f"slot {wanted.slot} created ({wanted.plugin})")
    return done


async def _make_tables(
    conn: AsyncConnection[TupleRow], wanted: Wanted, server: Server
) -> list[str]:
    tables = await read_tables(conn, wanted, server.version)
    existing = await read_candidates(conn, tables)
    missing = [table for table in tables if table.oid is None]
    _refuse_making(missing, wanted, existing)
    done = []
    for table in missing:
        name = table.table_name
        await _run(
            conn,
            statements.create_table(name),
            denied=f"role {server.role} may not create table {name}",
        )
        done.append(f"table {name} created")
    return done


def _refuse_making(
    missing: Sequence[Table], wanted: Wanted, existing: Collection[TableName]
) -> None:
    """Refuse to make a table that is probably somebody's slip of the pen."""
    for table in missing:
        name = table.table_name
        twins = [other for other in existing if is_twin(name, other)]
        if twins:
            raise RequirementMissing(
                f"table {name} does not exist, but {twins[0]} does",
                hint=f"if that is the one: CDC_OUTBOX__TABLES={twins[0]}",
            )
        if not statements.fits_default_columns(wanted):
            raise RequirementMissing(
                f"table {name} does not exist, and the columns mapped are not those of"
                " the table that `cdc init` makes",
                hint="create it yourself first, or leave CDC_OUTBOX__COLUMNS__*,"
                " CDC_OUTBOX__TOPIC and CDC_RECORD__HEADERS at default columns",
            )


async def _make_publication(
    conn: AsyncConnection[TupleRow], wanted: Wanted, server: Server
) -> list[str]:
    tables = await read_tables(conn, wanted, server.version)
    # What is wrong with a table is said before the server refuses to publish it.
    _refuse(
        found
        for found in coverage(tables, wanted, server.version, existing=())
        if found.name.startswith("outbox.")
    )
    name = wanted.publication
    denied = f"role {server.role} may not publish the outbox"
    if not tables[0].has_publication:
        await _run(
            conn, statements.create_publication(name, wanted.tables), denied=denied
        )
        return [f"publication {name} created"]
    unlisted = [
        table.table_name
        for table in tables
        if not (table.is_listed or table.is_published or table.root)
    ]
    if not unlisted:
        return []
    await _run(conn, statements.add_to_publication(name, unlisted), denied=denied)
    return [f"publication {name}: {table} added" for table in unlisted]


async def _run(conn: AsyncConnection[TupleRow], statement: str, *, denied: str) -> None:
    one_line = " ".join(statement.split())
    try:
        await conn.execute(statement.encode())
    except pg_errors.InsufficientPrivilege as exc:
        raise RequirementMissing(
            f"{denied}: {exc.diag.message_primary}",
            hint="have the owner of the schema and the tables, with CREATE on the"
            f" database, run: {one_line}",
        ) from exc
    except pg_errors.InvalidSchemaName as exc:
        raise RequirementMissing(
            f"{exc.diag.message_primary}",
            hint="create the schema first, or correct CDC_OUTBOX__TABLES",
        ) from exc
    except pg_errors.LockNotAvailable as exc:
        raise RequirementMissing(
            f"other transactions kept a table locked for {_LOCK_TIMEOUT_S} s",
            hint=f"when they have ended, try again: {one_line}",
        ) from exc


async def _make_slot(
    conn: AsyncConnection[TupleRow],
    wanted: Wanted,
    server: Server,
    timeout_s: float,
) -> None:
    # It would end the wait for open transactions too, and too soon.
    await conn.execute("SET lock_timeout = 0")
    try:
        await create_slot(
            conn,
            wanted.slot,
            plugin=wanted.plugin,
            failover=server.version >= FAILOVER_SINCE,
            timeout_s=timeout_s,
        )
    except SlotNotReady as exc:
        reading = await read(conn)
        blockers = "; ".join(map(_named, reading.blockers)) or "ended just now"
        raise RequirementMissing(
            f"slot {wanted.slot} had to wait {timeout_s:g} s for"
            f" {reading.blocker_count} open write transaction(s): {blockers}",
            hint="have them end (SELECT pg_terminate_backend(pid), COMMIT PREPARED,"
            " ROLLBACK PREPARED), then run `cdc init` again",
        ) from exc
    except SlotError as exc:
        raise _slot_refused(exc, wanted, server) from exc


def _named(blocker: Blocker) -> str:
    if blocker.gid is not None:
        return f"prepared transaction {blocker.gid!r} in {blocker.database}"
    known = [blocker.database, blocker.user, blocker.application]
    return f"pid {blocker.pid} ({', '.join(name for name in known if name)})"


def _slot_refused(exc: SlotError, wanted: Wanted, server: Server) -> Exception:
    if exc.sqlstate == pg_errors.ConfigurationLimitExceeded.sqlstate:
        return RequirementMissing(
            f"no replication slot is left: {exc}",
            hint=more_room(server, "max_replication_slots"),
        )
    plugin = access.plugin_refused(exc, wanted)
    if plugin.status is Status.FAILURE:
        return requirement_missing(plugin)
    if isinstance(exc, PermissionDenied):
        return RequirementMissing(
            f"role {server.role} may not make a slot: {exc}", hint=access.grant(server)
        )
    return exc


def _refuse(findings: Iterable[Finding]) -> None:
    for found in findings:
        if found.status is Status.FAILURE:
            raise requirement_missing(found)
