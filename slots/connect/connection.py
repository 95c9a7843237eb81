"""Open a connection: pins in the start-up packet, keepalive, a fresh password."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from slots.connect.password import current_password
from slots.connect.refusal import refusal
from slots.connect.target import address, defaults, parse, scrub, secrets
from slots.connect.translation import translated

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

    from slots.connect.target import Target
    from slots.errors import SlotError

PINS: Final = {
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "client_min_messages": "warning",
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "search_path": "",
}
"""Role and database defaults would change what values look like, hide a notice, hide
rows or cut the connection. Limits of our own replace the timeouts."""

_KEEPALIVE: Final = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_PREPARED_AFTER: Final = 5
"""Uses of a statement, as the driver has it by default. A walsender has no prepared
statements: with the sixth use of one it would refuse to go on."""

_TRANSACTION_TIMEOUT_SINCE: Final = 170000
_SHORTEST_TIMEOUT_S: Final = 2
"""Libpq takes anything shorter for this."""


async def connect(
    target: Target, *, replication: bool = False, timeout_s: float = 10.0
) -> psycopg.AsyncConnection[TupleRow]:
    """Open an autocommit connection with our pins in the start-up packet.

    What the DSN says for itself stays: its ``options`` (ours come behind and win; those
    of a service file that the DSN names are not read), application name, time limit and
    keepalive.

    Args:
        target: where, and how to get in.
        replication: make it a walsender for the target's database.
        timeout_s: for each host that is tried.

    Raises:
        SlotError: see :mod:`slots.errors`; the message names host, port, database and
            user, and never a secret.

    """
    parts = parse(target.dsn)
    password = await current_password(target)
    if password is not None:
        parts["password"] = password
    parts |= _pinned(parts, replication=replication)
    environment = defaults()
    wanted = {
        "application_name": target.application_name,
        "connect_timeout": str(max(_SHORTEST_TIMEOUT_S, round(timeout_s))),
    } | _KEEPALIVE
    for name, value in wanted.items():
        if name not in environment:
            parts.setdefault(name, value)
    conninfo = make_conninfo("", **parts)
    try:
        connection = await psycopg.AsyncConnection.connect(
            conninfo,
            autocommit=True,
            prepare_threshold=None if replication else _PREPARED_AFTER,
        )
    except psycopg.Error as exc:
        # Raised further down: here the driver's error, which may quote a secret, would
        # go with ours as its context.
        text, used_password = (
            str(exc),
            exc.pgconn is not None and (exc.pgconn.used_password),
        )
    else:
        return await _pinned_later(connection)
    raise await _refused(target, parts, text, used_password=used_password)


def _pinned(parts: dict[str, Any], *, replication: bool) -> dict[str, str]:
    given = str(parts.get("options") or defaults().get("options") or "")
    pins = " ".join(f"-c {name}={value}" for name, value in PINS.items())
    pinned = {"client_encoding": "UTF8", "options": f"{given} {pins}".strip()}
    return pinned | ({"replication": "database"} if replication else {})


async def _pinned_later(
    connection: psycopg.AsyncConnection[TupleRow],
) -> psycopg.AsyncConnection[TupleRow]:
    """Pin what older servers do not know: in the start-up packet they refuse it."""
    if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
        try:
            with translated():
                await connection.execute("SET transaction_timeout = 0")
        except BaseException:
            await connection.close()
            raise
    return connection


async def _refused(
    target: Target, parts: dict[str, Any], text: str, *, used_password: bool
) -> SlotError:
    hidden = secrets(parts)
    asked = {name: value for name, value in parts.items() if name != "replication"}

    def ping() -> pq.Ping:
        return pq.Ping(pq.PGconn.ping(make_conninfo("", **asked).encode()))

    return await asyncio.to_thread(
        refusal,
        address(target),
        scrub(text, hidden),
        used_password=used_password,
        ping=ping,
    )
