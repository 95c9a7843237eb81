"""What only a try can tell: may we replicate, will the plugin load, who answers.

Rights are never computed from catalogs: managed servers grant replication by roles and
patches of their own, and a role that the server accepts must not be refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import errors as pg_errors

from cdc import finding
from cdc.requirements import statements
from cdc.requirements.server import more_room, plugin_not_allowed
from slots.catalog import create_slot, drop_slot
from slots.connect import connect, translated
from slots.errors import PermissionDenied, SlotError, SlotNotReady

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from cdc.requirements.server import Server
    from cdc.requirements.wanted import Wanted
    from slots.connect import Target

CONNECT_TIMEOUT_S: Final = 5.0

_TRIAL_TIMEOUT_S: Final = 2.0
"""A slot is made only when older write transactions have ended; the plugin is loaded
before that wait."""

_MANAGED: Final = (
    " (managed servers: GRANT rds_replication on Amazon RDS and Aurora,"
    " ALTER ROLE ... REPLICATION by the administrator elsewhere)"
)


async def replication_right(target: Target, server: Server) -> Finding:
    """Open a replication connection and ask who is there: the proof of the right."""
    name = "postgres.replication"
    try:
        async with await connect(
            target, replication=True, timeout_s=CONNECT_TIMEOUT_S
        ) as conn:
            with translated():
                await conn.execute("IDENTIFY_SYSTEM")
    except SlotError as exc:
        return _refused(name, exc, server)
    return finding.ok(name, f"role {server.role} may replicate")


def _refused(name: str, exc: SlotError, server: Server) -> Finding:
    if "max_wal_senders" in str(exc):
        return finding.failure(
            name, f"no walsender is left: {exc}", more_room(server, "max_wal_senders")
        )
    if exc.hint and not isinstance(exc, PermissionDenied):
        return finding.failure(
            name, f"no replication connection for role {server.role}: {exc}", exc.hint
        )
    # An ordinary connection of the same role has just been let in; whatever words the
    # server finds for it (they are translated), it is the right that is missing.
    return finding.failure(
        name, f"role {server.role} may not replicate: {exc}", grant(server)
    )


def grant(server: Server) -> str:
    """Return the statement that gives our role the right to replicate."""
    return (
        statements.grant_replication(server.role, has_rds_role=server.has_rds_role)
        + _MANAGED
    )


def pooler(conn: AsyncConnection[TupleRow], server: Server) -> Finding:
    """Tell whether something between us and the server answers in its place.

    A pooler invents the process id that it tells its clients at the start.
    """
    name = "postgres.direct"
    if conn.info.backend_pid == server.backend_pid:
        return finding.ok(name, "connected to the server itself")
    return finding.warning(
        name,
        f"a connection pooler answers at {conn.info.host}:{conn.info.port}; it may not"
        " pass replication or our session settings on",
        "give the relay the server's own address in CDC_POSTGRES__DSN",
    )


async def plugin_loads(conn: AsyncConnection[TupleRow], wanted: Wanted) -> Finding:
    """Have the server load the plugin, for a temporary slot that is dropped at once."""
    name = "plugin.loads"
    trial = f"cdc_check_{conn.info.backend_pid}"
    try:
        await create_slot(
            conn,
            trial,
            plugin=wanted.plugin,
            temporary=True,
            timeout_s=_TRIAL_TIMEOUT_S,
        )
        await drop_slot(conn, trial)
    except SlotNotReady:
        return finding.ok(
            name, f"the server loads {wanted.plugin} (write transactions are open)"
        )
    except SlotError as exc:
        return plugin_refused(exc, wanted)
    return finding.ok(name, f"the server loads {wanted.plugin}")


def plugin_refused(exc: SlotError, wanted: Wanted) -> Finding:
    """Say why a slot of this plugin could not be made."""
    name = "plugin.loads"
    if exc.sqlstate == pg_errors.UndefinedFile.sqlstate:
        return finding.failure(
            name,
            f"{wanted.plugin} is not installed on the server: {exc}",
            f"install it there (Debian: apt-get install postgresql-NN-{wanted.plugin},"
            " NN the server's version), or CDC_SLOT__PLUGIN=pgoutput, which every"
            " server has",
        )
    if isinstance(exc, PermissionDenied) and wanted.plugin in str(exc):
        return plugin_not_allowed(wanted.plugin)
    return finding.warning(
        name,
        f"not known whether the server loads {wanted.plugin}: {exc}",
        "run `cdc check` again when a replication slot is free",
    )
