"""A connection to Postgres with our pins, for ordinary work and for replication.

Everything about *how* to get in (TLS, several hosts, service files, passfile) is
libpq's. What is added: pins against role and database defaults (they reach replication
sessions too), TCP keepalive, secrets that are read anew at every connect, and errors of
our own that never hold a secret.
"""

from __future__ import annotations

import asyncio
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from slots.errors import (
    AuthenticationRefused,
    BadConnectionSettings,
    DatabaseMissing,
    PermissionDenied,
    ServerRefused,
    ServerUnavailable,
    SlotBusy,
    SlotError,
    SlotMissing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from psycopg.rows import TupleRow

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
_NO_DSN: Final = SecretStr("")
_SECRET_COMMAND_LIMIT_S: Final = 30.0
_TRANSACTION_TIMEOUT_SINCE: Final = 170000

_BY_SQLSTATE: Final[tuple[tuple[str, type[SlotError]], ...]] = (
    ("28", AuthenticationRefused),
    ("3D000", DatabaseMissing),
    ("42501", PermissionDenied),
    ("42704", SlotMissing),
    ("55006", SlotBusy),
    ("08", ServerUnavailable),
    ("57P", ServerUnavailable),
    ("53300", ServerUnavailable),
)
_BY_CONNECT_TEXT: Final[tuple[tuple[str, type[SlotError]], ...]] = (
    ("password authentication failed", AuthenticationRefused),
    ("no password supplied", AuthenticationRefused),
    ("pg_hba.conf", AuthenticationRefused),
    ("authentication failed", AuthenticationRefused),
    ("certificate", AuthenticationRefused),
    ("permission denied", PermissionDenied),
    ("must be superuser or replication role", PermissionDenied),
    ("starting up", ServerUnavailable),
    ("shutting down", ServerUnavailable),
    ("recovery mode", ServerUnavailable),
    ("too many", ServerUnavailable),
    ("remaining connection slots", ServerUnavailable),
    ("unsupported startup parameter", ServerRefused),
)
"""Libpq gives no SQLSTATE for a refused connection, so here its text has to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and how to get in.

    Attributes:
        dsn: URI or key=value; empty means libpq's own ``PG*`` variables.
        password_file: read at every connect; one line break at the end is cut off.
        password_command: run at every connect without a shell; its output likewise.
        application_name: shown in pg_stat_activity.

    """

    dsn: SecretStr = _NO_DSN
    password_file: Path | None = None
    password_command: str | None = None
    application_name: str = "walferry"


async def connect(
    target: Target, *, replication: bool = False, timeout_s: float = 10.0
) -> psycopg.AsyncConnection[TupleRow]:
    """Open an autocommit connection with our pins in the start-up packet.

    Args:
        target: where, and how to get in.
        replication: make it a walsender for the target's database.
        timeout_s: for each host that is tried.

    Raises:
        SlotError: see :mod:`slots.errors`; the message names host, port, database and
            user, and never a secret.

    """
    parts = _parts(target.dsn.get_secret_value())
    password = await _password(target)
    if password is not None:
        parts["password"] = password
    parts |= {
        "application_name": target.application_name,
        "client_encoding": "UTF8",
        "connect_timeout": str(max(2, round(timeout_s))),
        "options": _options(str(parts.get("options") or "")),
    }
    if replication:
        parts["replication"] = "database"
    for name, value in _KEEPALIVE.items():
        parts.setdefault(name, value)
    secrets = _secrets(parts)
    try:
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo("", **parts), autocommit=True
        )
    except psycopg.Error as exc:
        raise _connect_error(target, _scrub(str(exc), secrets)) from None
    if connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
        # Unknown to older servers, which would refuse the start-up packet.
        try:
            with translated():
                await connection.execute("SET transaction_timeout = 0")
        except BaseException:
            # A cancellation too must not leave the connection to the collector.
            await connection.close()
            raise
    return connection


def address(target: Target) -> str:
    """Name the target without a secret: ``host:port/database as user``."""
    try:
        parts = _parts(target.dsn.get_secret_value())
    except BadConnectionSettings:
        return "a DSN that cannot be read"
    defaults = {
        option.keyword.decode(): option.val.decode()
        for option in psycopg.pq.Conninfo.get_defaults()
        if option.val
    }
    shown = defaults | {name: str(value) for name, value in parts.items() if value}
    host = shown.get("host") or shown.get("hostaddr") or "local socket"
    user = shown.get("user", "")
    database = shown.get("dbname") or user
    return f"{host}:{shown.get('port', '5432')}/{database} as {user}"


@contextmanager
def translated() -> Iterator[None]:
    """Turn psycopg's errors into ours, by SQLSTATE."""
    try:
        yield
    except psycopg.Error as exc:
        raise from_driver(exc) from exc


def from_driver(exc: psycopg.Error) -> SlotError:
    """Return our error for one of psycopg's; no SQLSTATE means the line broke."""
    sqlstate = exc.sqlstate
    text = _line(exc.diag.message_primary or str(exc))
    detail = exc.diag.message_detail
    if detail:
        text = f"{text} ({_line(detail)})"
    if sqlstate is None:
        return ServerUnavailable(f"connection lost: {text}")
    for prefix, error_class in _BY_SQLSTATE:
        if sqlstate.startswith(prefix):
            return error_class(text, sqlstate=sqlstate)
    return ServerRefused(
        text, hint=_line(exc.diag.message_hint or ""), sqlstate=sqlstate
    )


def _parts(dsn: str) -> dict[str, str | int | None]:
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # The driver's text quotes the DSN, and with it the password.
        raise BadConnectionSettings(
            "the DSN is neither a URI (postgresql://...) nor key=value pairs"
        ) from None


def _options(given: str) -> str:
    """Add the pins behind what the user gave, so that they win."""
    pins = " ".join(f"-c {name}={value}" for name, value in PINS.items())
    return f"{given} {pins}".strip()


async def _password(target: Target) -> str | None:
    """Read the password file or run the command; None when neither is set."""
    if target.password_file is not None:
        try:
            text = await asyncio.to_thread(target.password_file.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            reason = getattr(exc, "strerror", None) or type(exc).__name__
            raise BadConnectionSettings(
                f"password file {target.password_file}: {reason}"
            ) from None
        return text.removesuffix("\n").removesuffix("\r")
    if target.password_command is not None:
        return await _from_command(target.password_command)
    return None


async def _from_command(command: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (OSError, ValueError) as exc:
        raise BadConnectionSettings(
            f"the password command cannot be run: {type(exc).__name__}"
        ) from None
    try:
        async with asyncio.timeout(_SECRET_COMMAND_LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise BadConnectionSettings(
            f"the password command took over {_SECRET_COMMAND_LIMIT_S:g} s"
        ) from None
    if process.returncode:
        raise BadConnectionSettings(
            f"the password command failed with exit code {process.returncode}"
        )
    return output.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def _connect_error(target: Target, text: str) -> SlotError:
    where = address(target)
    for marker, error_class in _BY_CONNECT_TEXT:
        if marker in text:
            return error_class(f"{where}: {text}", **_pooler_hint(text))
    if "FATAL" in text:
        missing = "does not exist" in text and "role" not in text
        error = DatabaseMissing if missing else ServerRefused
        if "does not exist" in text and "role" in text:
            error = AuthenticationRefused
        return error(f"{where}: {text}")
    return ServerUnavailable(f"{where}: {text}")


def _pooler_hint(text: str) -> dict[str, str]:
    if "startup parameter" not in text:
        return {}
    return {
        "hint": "this looks like a connection pooler; connect to the Postgres server"
        " itself, replication does not pass a pooler"
    }


def _secrets(parts: dict[str, str | int | None]) -> list[str]:
    """List every form in which a secret could be quoted back to us."""
    found: list[str] = []
    for name in ("password", "sslpassword", "oauth_client_secret"):
        value = parts.get(name)
        if value:
            raw = str(value)
            escaped = raw.replace("\\", "\\\\").replace("'", "\\'")
            found += [raw, quote(raw, safe=""), quote(raw), escaped]
    return sorted(set(found), key=len, reverse=True)


def _scrub(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return _line(text)


def _line(text: str) -> str:
    return " ".join(text.split())
