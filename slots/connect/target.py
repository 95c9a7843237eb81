"""Which server, as which role, and every form in which a secret could come back."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from slots.errors import BadConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_NO_DSN: Final = SecretStr("")
_SECRET_DISPLAY: Final = b"*"
"""What libpq says of an option that must not be shown (PQconninfoOption.dispchar)."""

_SCHEMES: Final = ("postgresql://", "postgres://")
_UNREADABLE: Final = "a DSN that cannot be read"
_DEFAULT_PORT: Final = "5432"
_ENCODE: Final = (
    "percent-encode a password in a URI (@ is %40, : is %3A, / is %2F, % is %25), or"
    " use a password file, or key=value pairs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and how to get in.

    Attributes:
        dsn: URI or key=value; empty means libpq's own ``PG*`` variables.
        password_file: read at every connect; one line break at the end is cut off.
        password_command: run at every connect without a shell; its output likewise.
        application_name: shown in pg_stat_activity, unless the DSN has its own.

    """

    dsn: SecretStr = _NO_DSN
    password_file: Path | None = None
    password_command: str | None = None
    application_name: str = "walferry"


def address(target: Target) -> str:
    """Name the target without a secret: ``host:port/database as user``."""
    try:
        parts = parse(target.dsn)
    except BadConnectionSettings:
        return _UNREADABLE
    shown = defaults() | {name: str(value) for name, value in parts.items() if value}
    if "service" in shown:
        shown = {"host": f"service {shown['service']}"} | shown
    host = shown.get("host") or shown.get("hostaddr") or "local socket"
    user = shown.get("user", "")
    database = shown.get("dbname") or user
    hosts, ports = host.split(","), shown.get("port", "").split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    places = ",".join(
        f"{place or 'local socket'}:{port or _DEFAULT_PORT}"
        for place, port in zip(hosts, ports, strict=True)
    )
    return f"{places}/{database} as {user}"


def parse(dsn: SecretStr) -> dict[str, Any]:
    """Take a DSN apart; an empty one has no parts.

    Raises:
        BadConnectionSettings: it cannot be read. What it says is never quoted: where a
            password ends is exactly what is not known then.

    """
    text = dsn.get_secret_value().strip()
    if text.startswith(_SCHEMES):
        _refuse_reserved(text.partition("://")[2])
    try:
        parts = conninfo_to_dict(text)
    except (psycopg.Error, ValueError):
        # The driver's text quotes the DSN, and with it the password.
        parts = None
    if parts is None:
        raise BadConnectionSettings(
            "the DSN is neither a URI (postgresql://user@host:5432/database) nor"
            " key=value pairs (host=... dbname=... user=...)"
        )
    ports = str(parts.get("port") or "").split(",")
    if not all(port.isdigit() or not port for port in ports):
        raise BadConnectionSettings("the DSN's port is no number", hint=_ENCODE)
    return dict(parts)


def defaults() -> dict[str, str]:
    """Return what libpq takes from the environment where the DSN says nothing."""
    return {
        option.keyword.decode(): option.val.decode()
        for option in psycopg.pq.Conninfo.get_defaults()
        if option.val
    }


def secrets(parts: Mapping[str, Any]) -> list[str]:
    """List the secrets in every form that could be quoted back, longest first."""
    hidden = {
        option.keyword.decode()
        for option in psycopg.pq.Conninfo.get_defaults()
        if option.dispchar == _SECRET_DISPLAY
    }
    found = {str(parts[name]) for name in hidden if parts.get(name)}
    found |= {value for value in [os.environ.get("PGPASSWORD")] if value}
    return sorted({form for raw in found for form in _forms(raw)}, key=len)[::-1]


def scrub(text: str, hidden: Iterable[str]) -> str:
    """Replace secrets, in whatever form, and make one line of it."""
    for secret in hidden:
        text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
    return " ".join(text.split())


def _refuse_reserved(rest: str) -> None:
    """Refuse a URI whose password was not encoded; part of it would become a host."""
    authority, _, path = rest.partition("?")[0].partition("/")
    if authority.count("@") > 1 or "@" in path:
        raise BadConnectionSettings(
            "the DSN seems to hold a password with characters that a URI reserves",
            hint=_ENCODE,
        )


def _forms(raw: str) -> set[str]:
    quoted = raw.replace("\\", "\\\\").replace("'", "\\'")
    forms = {raw, quote(raw, safe=""), quote(raw), quote_plus(raw), quoted}
    forms |= {raw.replace("'", "''"), json.dumps(raw)[1:-1], repr(raw)[1:-1]}
    return forms
