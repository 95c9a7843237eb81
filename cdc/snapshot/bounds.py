"""Which rows are meant: bounds, and how a user writes one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from cdc.errors import SettingsError
from slots.lsn import Lsn

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?", re.DOTALL)
_LSN: Final = re.compile(r"[0-9A-Fa-f]+/[0-9A-Fa-f]+")
_ID_PREFIX: Final = "id:"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN: Final = 60
_HINT: Final = (
    "write a time (2026-01-31T12:00:00Z; without a zone it is UTC), an LSN (0/16B3748),"
    " or an event's id (id:... for one that looks like a time or an LSN)"
)


@dataclass(frozen=True, slots=True)
class EventId:
    """An event's id, as text."""

    text: str


Place: TypeAlias = datetime | Lsn | EventId


@dataclass(frozen=True, slots=True)
class Since:
    """One end of a range of rows: a time, a position in the WAL, or an event.

    ``value`` has a zone when it is a time.
    """

    value: Place

    @property
    def at_ms(self) -> int | None:
        """Milliseconds since 1970 of a time, rounded down; None for all else."""
        if not isinstance(self.value, datetime):
            return None
        return (self.value - _EPOCH) // timedelta(milliseconds=1)

    def __str__(self) -> str:
        match self.value:
            case datetime():
                return f"{self.value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
            case EventId():
                return f"event {self.value.text}"
            case _:
                return str(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Rows of a table; without any bound, all of them.

    Attributes:
        horizon: only rows whose inserting transaction is this one or a later one; a
            full transaction id, as ``xid8`` has it.
        since: rows from this time on, or this event and what comes behind it. A
            position in the WAL is for the caller to turn into a horizon.
        until: rows up to and with this time, or this event.
        key: only rows of this key, as Postgres writes it.

    """

    horizon: int | None = None
    since: Since | None = None
    until: Since | None = None
    key: str | None = None


def parse_since(text: str) -> Since:
    """Read what a user gives as ``--since`` or ``--until``.

    A time is ISO 8601 and without a zone in UTC; two hexadecimal halves are an LSN;
    anything else is an event's id.

    Raises:
        SettingsError: it is none of them.

    """
    given = text.strip()
    if not given.removeprefix(_ID_PREFIX):
        raise SettingsError("an empty text is no bound", hint=_HINT)
    if "\0" in given:
        raise SettingsError("a bound cannot have a NUL character", hint=_HINT)
    if _TIME.fullmatch(given):
        return Since(_time(given))
    if _LSN.fullmatch(given):
        try:
            return Since(Lsn.parse(given))
        except ValueError as exc:
            raise _neither(given, "an LSN") from exc
    return Since(EventId(given.removeprefix(_ID_PREFIX)))


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return time.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise _neither(text, "a time") from exc


def _neither(text: str, what: str) -> SettingsError:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return SettingsError(f"{shown!r} looks like {what} and is none", hint=_HINT)
