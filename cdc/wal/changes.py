r"""What both decoders say about the WAL, in the same words.

Values are bytes: the text Postgres prints for the value, UTF-8, whichever plugin sent
it (booleans ``t``/``f``, bytea ``\x00ff``). ``None`` is SQL NULL.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slots.lsn import Lsn


class Unchanged(enum.Enum):
    """The value was not sent: a TOASTed column that an UPDATE left alone.

    Not NULL: nobody knows the value without reading the table.
    """

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value: TypeAlias = bytes | Unchanged | None


BYTEA_OID: Final = 17
"""The built-in type's oid, the same in every server (pg_type.dat)."""


class ColumnType(enum.Enum):
    """How a column's text becomes a record's bytes."""

    TEXT = "text"
    BYTEA = "bytea"
    """Hex text with a ``\\x`` in front, or a domain over bytea."""


class Column(NamedTuple):
    """A column as the WAL names it, at the time of the change."""

    name: str
    type: ColumnType = ColumnType.TEXT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relation:
    """A table's layout at one moment; compared by identity, one object per layout.

    Attributes:
        oid: None where the plugin does not tell (wal2json).
        columns: the published columns, in the order of a row's values.

    """

    oid: int | None
    schema: str
    name: str
    columns: tuple[Column, ...]


class Begin(NamedTuple):
    """A committed transaction starts. Its commit position is known from here on.

    A named tuple like all that comes once a row or once a transaction: a frozen
    dataclass takes three times as long to make.
    """

    xid: int
    commit_lsn: Lsn
    committed_at_us: int
    """Commit time in microseconds since 1970-01-01 UTC."""


class Insert(NamedTuple):
    """A row was inserted."""

    relation: Relation
    values: Sequence[Value]


class SkipKind(enum.StrEnum):
    """Changes that an outbox relay has no use for; they are counted."""

    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    ORIGIN = "origin"
    TYPE = "type"
    MESSAGE = "message"
    FOREIGN_INSERT = "foreign_insert"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A change of no use, named so that it can be counted.

    ``relation`` is given for updates and deletes where the plugin tells the table.
    """

    kind: SkipKind
    relation: Relation | None = None


class Commit(NamedTuple):
    """A transaction ends: ``end_lsn`` is what may be confirmed once it is delivered."""

    commit_lsn: Lsn
    end_lsn: Lsn


Change: TypeAlias = Begin | Relation | Insert | Skipped | Commit
