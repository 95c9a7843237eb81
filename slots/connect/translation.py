"""Errors of the driver become errors of ours, by SQLSTATE."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from slots.errors import (
    AuthenticationRefused,
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

# An invalidated slot has no code of its own: 55000 stands for several states, and its
# text differs between versions and languages. Who needs to know reads the slot's row.
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
_SUPPOSED: Final = " This probably means"
_HINTS_BY_SQLSTATE: Final = {
    "0A000": "the server does not do this; compare its version",
    "53300": "raise max_connections or max_wal_senders, or close connections",
    "53400": "raise max_replication_slots (a restart), or drop a slot: `slots list`",
    "58P01": "install the plugin on the server, or take pgoutput, which every one has",
}


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
    if exc.diag.message_detail:
        text = f"{text} ({_line(exc.diag.message_detail)})"
    if sqlstate is None:
        # What libpq goes on to suppose is no news to who reads "lost".
        return ServerUnavailable(f"connection lost: {text.partition(_SUPPOSED)[0]}")
    said = _line(exc.diag.message_hint or "")
    hint = said or _HINTS_BY_SQLSTATE.get(sqlstate)
    for prefix, error_class in _BY_SQLSTATE:
        if sqlstate.startswith(prefix):
            return error_class(text, hint=hint, sqlstate=sqlstate)
    return ServerRefused(text, hint=hint, sqlstate=sqlstate)


def _line(text: str) -> str:
    return " ".join(text.split())
