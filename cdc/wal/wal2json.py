"""Parse wal2json, format version 2, into the same changes as pgoutput.

The plugin prints numbers bare and exactly; a parser that makes floats of them would
change digits, or refuse a numeric that no float can hold, so a row with such a number
is read a second time with numbers left as text. NaN and infinities are null already
when they reach us: the plugin knows no better (facts in ARCHITECTURE.md).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import orjson

from cdc.errors import DecodeError
from cdc.wal.changes import (
    BYTEA_OID,
    Begin,
    Change,
    Column,
    ColumnType,
    Commit,
    Insert,
    Relation,
    SkipKind,
    Skipped,
)
from slots.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from cdc.wal.changes import Value

_HEX_PREFIX: Final = b"\\x"
_LIST_SYNTAX: Final = " ',.*\\"

_MAX_RELATIONS = 4096
"""Layouts remembered; a database that makes tables all day must not fill memory."""

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT_DIGITS: Final = 18
_PARTS: Final = itemgetter("name", "typeoid", "value")
_UTF8: Final = str.encode


def options(tables: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return what START_REPLICATION has to ask for so that this decoder understands.

    Args:
        tables: (schema, table) to be told about; empty for all.

    """
    chosen = {
        "format-version": "2",
        "include-xids": "true",
        "include-timestamp": "true",
        "include-lsn": "true",
        # Names of types in a schema that needs quotes come out as broken JSON.
        "include-types": "false",
        "include-type-oids": "true",
    }
    if tables:
        chosen["add-tables"] = ",".join(
            f"{_escaped(schema)}.{_escaped(table)}" for schema, table in tables
        )
    return chosen


def _escaped(name: str) -> str:
    """Escape what the plugin's own list syntax would take for syntax."""
    return "".join(f"\\{c}" if c in _LIST_SYNTAX else c for c in name)


class _Layout(NamedTuple):
    """A relation, and whether text of its rows is taken as it is."""

    relation: Relation
    is_plain: bool


class Decoder:
    """Turns wal2json objects into changes; remembers the layouts it has seen.

    Args:
        bytea_types: type oids whose text is bytea hex: bytea and the domains over it.

    """

    def __init__(self, bytea_types: AbstractSet[int] = frozenset({BYTEA_OID})) -> None:
        self._bytea_types = bytea_types
        self._layouts: dict[tuple[object, ...], _Layout] = {}
        self._decoders: dict[object, Callable[[dict[str, Any], bytes], Change]] = {
            "B": _begin,
            "C": _commit,
            "I": self._insert,
            "U": self._update,
            "D": self._delete,
            "T": _truncate,
            "M": _message,
        }

    def decode(self, payload: bytes) -> Change:
        """Decode one message; raise DecodeError for bytes that are not one."""
        message = _parse(payload)
        if not isinstance(message, dict):
            raise DecodeError("wal2json: not a JSON object, at offset 0")
        action = message.get("action")
        decode = self._decoders.get(action) if isinstance(action, str) else None
        if decode is None:
            raise DecodeError(f"wal2json: action {_short(action)} is unknown")
        try:
            return decode(message, payload)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as exc:
            raise DecodeError(
                f"wal2json {action!r}: a member is missing or of the wrong type ({exc})"
            ) from exc

    def _insert(self, message: dict[str, Any], payload: bytes) -> Insert:
        names, type_oids, values = _taken_apart(message["columns"])
        layout = self._layout(message, names, type_oids)
        texts = _texts(values) if layout.is_plain else None
        if texts is not None:
            return Insert(layout.relation, texts)
        if any([_loses_digits(value, payload) for value in values]):  # noqa: C419 - a generator costs three times as much
            _, _, values = _taken_apart(_parse_exactly(payload)["columns"])
        columns = layout.relation.columns
        return Insert(
            layout.relation,
            [
                _value(value, column.type)
                for value, column in zip(values, columns, strict=True)
            ],
        )

    def _update(self, message: dict[str, Any], _payload: bytes) -> Skipped:
        columns = message.get("columns", [])
        names = tuple([column["name"] for column in columns])
        type_oids = tuple([column["typeoid"] for column in columns])
        relation = self._layout(message, names, type_oids).relation
        return Skipped(kind=SkipKind.UPDATE, relation=relation)

    def _delete(self, message: dict[str, Any], _payload: bytes) -> Skipped:
        relation = self._layout(message, (), ()).relation
        return Skipped(kind=SkipKind.DELETE, relation=relation)

    def _layout(
        self, message: dict[str, Any], names: Sequence[Any], type_oids: Sequence[Any]
    ) -> _Layout:
        """Find or make the one layout of this table and these columns."""
        key = (message["schema"], message["table"], names, type_oids)
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _MAX_RELATIONS:
                self._layouts.clear()
            types = [self._column_type(type_oid) for type_oid in type_oids]
            relation = Relation(
                oid=None,
                schema=_text(message["schema"]),
                name=_text(message["table"]),
                columns=tuple(map(Column, map(_text, names), types)),
            )
            layout = _Layout(relation, ColumnType.BYTEA not in types)
            self._layouts[key] = layout
        return layout

    def _column_type(self, type_oid: object) -> ColumnType:
        return (
            ColumnType.BYTEA if _oid(type_oid) in self._bytea_types else ColumnType.TEXT
        )


def _taken_apart(
    columns: Sequence[dict[str, Any]],
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Return a row's names, type oids and values, each in its own tuple."""
    if not columns:
        return (), (), ()
    names, type_oids, values = zip(*map(_PARTS, columns), strict=True)
    return names, type_oids, values


def _texts(values: Sequence[Any]) -> list[bytes] | None:
    """Return the values when all of them are text, else None."""
    try:
        return list(map(_UTF8, values))
    except TypeError:
        return None


def _parse(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as exc:
        # It refuses a number that is beyond every float; a numeric may be.
        try:
            return _parse_exactly(payload)
        except ValueError:
            raise DecodeError(f"wal2json: not JSON, at offset {exc.pos}") from exc


def _parse_exactly(payload: bytes) -> Any:
    """Parse with every number left as text whose digits would not come back."""
    try:
        return _EXACTLY.decode(payload.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(text: str) -> int | str:
    return text if len(text) > _EXACT_DIGITS or text == "-0" else int(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_EXACTLY = json.JSONDecoder(parse_int=_whole, parse_float=str, parse_constant=_constant)


def _loses_digits(value: object, payload: bytes) -> bool:
    """Tell whether the quick parser may have changed the text of a number."""
    # Floats have no exact digits, whole numbers do, but for the sign of a zero.
    return type(value) is float or (value == 0 and b":-0" in payload)


def _value(value: object, column_type: ColumnType) -> Value:
    """Give the text Postgres prints for a JSON value of wal2json."""
    if isinstance(value, str):
        text = value.encode()
        if column_type is ColumnType.BYTEA and not text.startswith(_HEX_PREFIX):
            # The plugin cuts it off bytea (not off a domain over bytea); put it back,
            # so that both plugins agree.
            return _HEX_PREFIX + text
        return text
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return str(value).encode()
    return _wrong(f"value is {type(value).__name__}")


def _begin(message: dict[str, Any], _payload: bytes) -> Begin:
    return Begin(
        xid=_xid(message["xid"]),
        commit_lsn=Lsn.parse(message["lsn"]),
        committed_at_us=_microseconds(message["timestamp"]),
    )


def _commit(message: dict[str, Any], _payload: bytes) -> Commit:
    return Commit(
        commit_lsn=Lsn.parse(message["lsn"]), end_lsn=Lsn.parse(message["nextlsn"])
    )


def _truncate(_message: dict[str, Any], _payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.TRUNCATE)


def _message(_message: dict[str, Any], _payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.MESSAGE)


def _microseconds(text: str) -> int:
    """Read ``2026-11-30 21:12:35.553895+00``, exactly, as microseconds since 1970."""
    moment = datetime.fromisoformat(text)
    return (moment - _UNIX_EPOCH) // _MICROSECOND


def _xid(value: object) -> int:
    if type(value) is not int or not 0 < value < 1 << 32:
        _wrong("xid is no transaction id")
    return value


def _oid(value: object) -> int:
    return value if type(value) is int else _wrong("a type is no oid")


def _text(value: object) -> str:
    """Take a name; a lone surrogate, which has no UTF-8 form, is a ValueError."""
    if not isinstance(value, str):
        _wrong("a name is no text")
    value.encode()
    return value


def _short(value: object) -> str:
    return repr(value[:40]) if isinstance(value, str) else type(value).__name__


def _wrong(what: str) -> NoReturn:
    raise TypeError(what)
