"""Decode pgoutput, protocol version 1, text values.

Source: "Logical Replication Message Formats" in the Postgres manual. Streaming of
transactions in progress and two-phase decoding are not asked for, so their messages
are errors here. Bytes that do not fit raise DecodeError with kind and offset, and
nothing is skipped.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

from cdc.errors import DecodeError
from cdc.wal.changes import (
    BYTEA_OID,
    UNCHANGED,
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
from cdc.wal.frames import POSTGRES_EPOCH_US
from slots.lsn import lsn_of_wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from cdc.wal.changes import Value

_BEGIN = struct.Struct("!xQqI")
_COMMIT = struct.Struct("!xxQQ8x")
_COLUMN = struct.Struct("!Ii")
_INSERT_HEAD = struct.Struct("!xIcH")
_uint16 = struct.Struct("!H").unpack_from
_uint32 = struct.Struct("!I").unpack_from
_TEXT, _BINARY, _NULL, _UNCHANGED = b"tbnu"
_NEW_TUPLE = b"N"
_insert_of = partial(tuple.__new__, Insert)
"""Makes an Insert of its values in order; there is one for every row."""


def options(publication: str) -> dict[str, str]:
    """Return what START_REPLICATION has to ask for so that this decoder understands."""
    quoted = publication.replace('"', '""')
    return {"proto_version": "1", "publication_names": f'"{quoted}"'}


class Decoder:
    """Turns pgoutput messages into changes; knows the relations of one connection.

    Args:
        bytea_types: type oids whose text is bytea hex: bytea and the domains over it.

    """

    def __init__(self, bytea_types: AbstractSet[int] = frozenset({BYTEA_OID})) -> None:
        self._bytea_types = bytea_types
        self._relations: dict[int, Relation] = {}
        self._decoders: dict[int, Callable[[bytes], Change]] = {
            ord("B"): _begin,
            ord("C"): _commit,
            ord("R"): self._relation,
            ord("I"): self._insert,
            ord("U"): self._update,
            ord("D"): self._delete,
            ord("T"): _truncate,
            ord("O"): _origin,
            ord("Y"): _type,
            ord("M"): _message,
        }

    def decode(self, payload: bytes) -> Change:
        """Decode one message; raise DecodeError for bytes that are not one."""
        if not payload:
            raise DecodeError("pgoutput: empty message at offset 0")
        decode = self._decoders.get(payload[0])
        if decode is None:
            raise DecodeError(
                f"pgoutput: message 0x{payload[0]:02x} is unknown or was not asked for,"
                " at offset 0"
            )
        try:
            return decode(payload)
        except (struct.error, IndexError, ValueError) as exc:
            raise DecodeError(
                f"pgoutput {chr(payload[0])!r}: cut off or garbled, "
                f"{len(payload)} bytes ({exc})"
            ) from exc

    def _relation(self, payload: bytes) -> Relation:
        (oid,) = _uint32(payload, 1)
        schema, offset = _string(payload, 5)
        name, offset = _string(payload, offset)
        offset += 1  # replica identity: an outbox only ever inserts
        (count,) = _uint16(payload, offset)
        offset += 2
        columns = []
        for _ in range(count):
            column, offset = _string(payload, offset + 1)  # after the key flag
            type_oid, _modifier = _COLUMN.unpack_from(payload, offset)
            offset += _COLUMN.size
            is_bytea = type_oid in self._bytea_types
            columns.append(
                Column(column, ColumnType.BYTEA if is_bytea else ColumnType.TEXT)
            )
        _expect_end(payload, offset)
        relation = Relation(
            oid=oid,
            # An empty namespace is pg_catalog's, by the protocol.
            schema=schema or "pg_catalog",
            name=name,
            columns=tuple(columns),
        )
        self._relations[oid] = relation
        return relation

    def _known(self, payload: bytes) -> Relation:
        (oid,) = _uint32(payload, 1)
        try:
            return self._relations[oid]
        except KeyError:
            raise DecodeError(
                f"pgoutput {chr(payload[0])!r}: relation {oid} was never described,"
                " at offset 1"
            ) from None

    def _insert(self, payload: bytes) -> Insert:
        oid, marker, count = _INSERT_HEAD.unpack_from(payload)
        relation = self._relations.get(oid) or self._known(payload)
        if marker != _NEW_TUPLE:
            raise DecodeError(f"pgoutput 'I': tuple marker {marker!r} at offset 5")
        if count != len(relation.columns):
            raise DecodeError(
                f"pgoutput 'I': {count} values for the {len(relation.columns)} columns"
                f" of {relation.schema}.{relation.name}, at offset 6"
            )
        return _insert_of((relation, _values(payload, _INSERT_HEAD.size, count)))

    def _update(self, payload: bytes) -> Skipped:
        return Skipped(kind=SkipKind.UPDATE, relation=self._known(payload))

    def _delete(self, payload: bytes) -> Skipped:
        return Skipped(kind=SkipKind.DELETE, relation=self._known(payload))


def _values(payload: bytes, offset: int, count: int) -> list[Value]:
    """Slice a tuple's values. A length that overshoots shows at the end."""
    values: list[Value] = []
    for _ in range(count):
        kind = payload[offset]
        if kind == _TEXT:
            start = offset + 5
            offset = start + _uint32(payload, offset + 1)[0]
            values.append(payload[start:offset])
        elif kind == _NULL:
            values.append(None)
            offset += 1
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
            offset += 1
        else:
            what = "binary value" if kind == _BINARY else f"value kind 0x{kind:02x}"
            raise DecodeError(f"pgoutput: {what} was not asked for, at offset {offset}")
    _expect_end(payload, offset)
    return values


def _begin(payload: bytes) -> Begin:
    if len(payload) != _BEGIN.size:
        raise _wrong_size(payload, _BEGIN)
    commit_lsn, committed_at, xid = _BEGIN.unpack(payload)
    return Begin(xid, lsn_of_wire(commit_lsn), committed_at + POSTGRES_EPOCH_US)


def _commit(payload: bytes) -> Commit:
    if len(payload) != _COMMIT.size:
        raise _wrong_size(payload, _COMMIT)
    commit_lsn, end_lsn = _COMMIT.unpack(payload)
    return Commit(lsn_of_wire(commit_lsn), lsn_of_wire(end_lsn))


def _truncate(_payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.TRUNCATE)


def _origin(_payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.ORIGIN)


def _type(_payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.TYPE)


def _message(_payload: bytes) -> Skipped:
    return Skipped(kind=SkipKind.MESSAGE)


def _string(payload: bytes, offset: int) -> tuple[str, int]:
    """Read a NUL-terminated string; return it and the offset behind it."""
    end = payload.index(b"\0", offset)
    return payload[offset:end].decode(), end + 1


def _expect_end(payload: bytes, offset: int) -> None:
    if offset != len(payload):
        raise DecodeError(
            f"pgoutput {chr(payload[0])!r}: ends at offset {len(payload)},"
            f" its lengths say {offset}"
        )


def _wrong_size(payload: bytes, layout: struct.Struct) -> DecodeError:
    return DecodeError(
        f"pgoutput {chr(payload[0])!r}: {len(payload)} bytes, expected {layout.size}"
    )
