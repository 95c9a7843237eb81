"""Which column is what, and how a row of a given layout becomes an event."""

from __future__ import annotations

from binascii import Error as HexError
from binascii import unhexlify
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.errors import ColumnMissing, MappingError
from cdc.outbox.event import Event
from cdc.outbox.row_headers import header_pairs
from cdc.outbox.template import TABLE_FIELDS, Template
from cdc.outbox.topic import check_topic
from cdc.wal.changes import UNCHANGED, ColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.outbox.table_name import TableName
    from cdc.wal.changes import Begin, Relation, Value
    from cdc.wal.transaction import Row

DEFAULT_TOPIC: Final = "outbox.event.{aggregatetype}"
"""Here, and only here, the braces name the column mapped as aggregate type."""

_EVENT_OVERHEAD_BYTES: Final = 200
"""What a record holds beside what the row brings: the batch header (61 bytes), its own
varints, and the names and values of the headers that are ours (at most 110 bytes)."""

_HEADER_OVERHEAD_BYTES: Final = 6

_MAX_TOPICS_REMEMBERED: Final = 4096
_US_PER_MS: Final = 1000
_HEX_PREFIX: Final = b"\\x"

_RESERVED: Final = ("id", "type")
_RESERVED_PREFIX: Final = "cdc."


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The outbox table's columns by role.

    Each role lists the names it may have, first match first: while a renamed column's
    old name is still in the WAL, both are given. An empty role is not used.
    """

    id: tuple[str, ...] = ("id",)
    aggregate_type: tuple[str, ...] = ("aggregatetype",)
    key: tuple[str, ...] = ("aggregateid",)
    type: tuple[str, ...] = ("type",)
    payload: tuple[str, ...] = ("payload",)
    headers: tuple[str, ...] = ()
    partition_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """What the user wrote about rows and records.

    Attributes:
        columns: the columns by role.
        topic: template of the topic.
        record_headers: further headers, name and template, in order.
        epoch: first part of ``cdc.position``.

    """

    columns: Columns
    topic: Template
    record_headers: tuple[tuple[str, Template], ...] = ()
    epoch: int = 0

    def required_columns(self) -> tuple[tuple[str, ...], ...]:
        """Return groups of names; a table fits when it has one of each group."""
        roles = self.columns
        groups = [
            roles.id,
            roles.key,
            roles.type,
            roles.payload,
            roles.headers,
            roles.partition_key,
            *self._topic_columns(),
        ]
        for _, template in self.record_headers:
            groups.extend((name,) for name in template.columns)
        return tuple(dict.fromkeys(group for group in groups if group))

    def _topic_columns(self) -> Sequence[tuple[str, ...]]:
        if self.topic.text == DEFAULT_TOPIC:
            return [self.columns.aggregate_type]
        return [(name,) for name in self.topic.columns]

    def bind(self, relation: Relation, table: TableName) -> Binding:
        """Find the mapped columns in a table's layout.

        Args:
            relation: the layout, as the WAL tells it.
            table: the configured table it belongs to (the root of a partition).

        Raises:
            ColumnMissing: a mapped column is not in the layout.

        """
        return Binding(self, relation, table)


class _Layout:
    """Looks columns up in one relation."""

    def __init__(self, relation: Relation, table: TableName) -> None:
        self._relation = relation
        self.table = table
        self._index = {column.name: i for i, column in enumerate(relation.columns)}

    def find(self, names: tuple[str, ...]) -> int | None:
        if not names:
            return None
        for name in names:
            if name in self._index:
                return self._index[name]
        raise ColumnMissing(
            f"table {self.table} has no column {' or '.join(map(repr, names))}"
            f" in the WAL (it has {', '.join(self._index)})",
        )

    def is_bytea(self, index: int) -> bool:
        return self._relation.columns[index].type is ColumnType.BYTEA

    def resolve(
        self, template: Template, default: tuple[str, ...] | None = None
    ) -> _BoundTemplate:
        parts: list[tuple[str, int | None]] = []
        for literal, name in template.parts:
            if name in TABLE_FIELDS:
                own = self.table.schema if name == "schema" else self.table.name
                parts.append((literal + own, None))
            elif name is None:
                parts.append((literal, None))
            else:
                parts.append((literal, self.find(default or (name,))))
        return _BoundTemplate(tuple(parts))


class _BoundTemplate:
    """A template whose columns are positions in the row."""

    __slots__ = ("constant", "indexes", "parts", "single")

    def __init__(self, parts: tuple[tuple[str, int | None], ...]) -> None:
        self.parts = parts
        self.indexes = tuple(index for _, index in parts if index is not None)
        self.constant = (
            None if self.indexes else "".join(literal for literal, _ in parts)
        )
        self.single = (
            self.indexes[0]
            if len(parts) == 1 and not parts[0][0] and self.indexes
            else None
        )

    def render(self, values: tuple[Value, ...]) -> bytes | None:
        """Fill in a row: one bare column passes NULL on, else NULL is empty text."""
        if self.single is not None:
            return _given(values[self.single])
        return b"".join(
            literal.encode() + (b"" if index is None else _given(values[index]) or b"")
            for literal, index in self.parts
        )


def _given(value: Value) -> bytes | None:
    if value is UNCHANGED:
        raise MappingError("an inserted row came without one of its values")
    return value


class Binding:
    """Turns rows of one layout into events.

    Attributes:
        forged_headers: header pairs left out because their names are ours.
        keyless: events without a key, which have no order among themselves.

    """

    def __init__(self, mapping: Mapping, relation: Relation, table: TableName) -> None:
        layout = _Layout(relation, table)
        columns = mapping.columns
        self.table = table
        self.forged_headers = 0
        self.keyless = 0
        self._epoch = mapping.epoch
        self._id = layout.find(columns.id)
        self._key = layout.find(columns.key)
        self._type = layout.find(columns.type)
        self._payload = layout.find(columns.payload)
        self._row_headers = layout.find(columns.headers)
        self._partition_key = layout.find(columns.partition_key)
        self._bytea = frozenset(
            index
            for index in (self._key, self._payload, self._partition_key)
            if index is not None and layout.is_bytea(index)
        )
        is_default = mapping.topic.text == DEFAULT_TOPIC
        self._topic = layout.resolve(
            mapping.topic, columns.aggregate_type if is_default else None
        )
        self._record_headers = [
            (name, layout.resolve(template))
            for name, template in mapping.record_headers
        ]
        self._topics: dict[object, str] = {}
        self._transaction: Begin | None = None
        self._position_prefix = b""
        self._xid = b""
        self._timestamp_ms = 0

    def event(self, row: Row) -> Event:
        """Make the event of a row; raise MappingError when the row cannot be one."""
        if row.transaction is not self._transaction:
            self._enter(row.transaction)
        values = row.values
        event_id = self._event_id(values)
        try:
            key = self._raw(values, self._key)
            value = self._raw(values, self._payload)
            headers: list[tuple[str, bytes | None]] = [("id", event_id)]
            size = _EVENT_OVERHEAD_BYTES + len(event_id)
            if self._type is not None:
                type_name = _given(values[self._type])
                headers.append(("type", type_name))
                size += len(type_name or b"")
            size += len(key or b"") + len(value or b"")
            if self._record_headers or self._row_headers is not None:
                size += self._add_headers(headers, values)
            headers.append(("cdc.position", self._position_prefix % row.ordinal))
            headers.append(("cdc.xid", self._xid))
            if row.is_last:
                headers.append(("cdc.last", b"1"))
            if key is None:
                self.keyless += 1
                if value is None:
                    raise MappingError("it has neither key nor payload")  # noqa: TRY301 - gets the row's name below
            return Event(
                event_id.decode(errors="replace"),
                self._topic_of(values),
                key,
                value,
                headers,
                self._timestamp_ms,
                key
                if self._partition_key is None
                else self._raw(values, self._partition_key),
                size,
            )
        except MappingError as exc:
            shown = event_id.decode(errors="replace")
            raise MappingError(
                f"event {shown} of {self.table}, transaction {row.transaction.xid}"
                f" at {row.transaction.commit_lsn}: {exc}"
            ) from exc

    def _enter(self, transaction: Begin) -> None:
        self._transaction = transaction
        self._position_prefix = (
            f"{self._epoch:04X}-{transaction.commit_lsn:016X}-%08X".encode()
        )
        self._xid = str(transaction.xid).encode()
        self._timestamp_ms = transaction.committed_at_us // _US_PER_MS

    def _event_id(self, values: tuple[Value, ...]) -> bytes:
        value = values[self._id] if self._id is not None else None
        if not isinstance(value, bytes):
            raise MappingError(
                f"a row of {self.table}, transaction {self._xid.decode()}: its id is"
                " NULL, and an event without an id cannot be told from a repeat"
            )
        return value

    def _raw(self, values: tuple[Value, ...], index: int | None) -> bytes | None:
        if index is None:
            return None
        value = _given(values[index])
        if value is None or index not in self._bytea:
            return value
        if not value.startswith(_HEX_PREFIX):
            raise MappingError("a bytea value is not in hex format")
        try:
            return unhexlify(value[2:])
        except HexError as exc:
            raise MappingError(f"a bytea value is not valid hex ({exc})") from exc

    def _add_headers(
        self, headers: list[tuple[str, bytes | None]], values: tuple[Value, ...]
    ) -> int:
        """Add mapped headers, then the row's own; return their size in bytes."""
        start = len(headers)
        for name, template in self._record_headers:
            headers.append((name, template.render(values)))
        column = None
        if self._row_headers is not None:
            column = _given(values[self._row_headers])
        if column is not None:
            try:
                pairs = header_pairs(column)
            except ValueError as exc:
                raise MappingError(f"its headers column is {exc}") from exc
            allowed = [pair for pair in pairs if not is_reserved(pair[0])]
            self.forged_headers += len(pairs) - len(allowed)
            headers.extend(allowed)
        return sum(
            _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(value or b"")
            for name, value in headers[start:]
        )

    def _topic_of(self, values: tuple[Value, ...]) -> str:
        template = self._topic
        if template.constant is not None:
            return template.constant
        key = tuple([values[index] for index in template.indexes])
        topic = self._topics.get(key)
        if topic is None:
            topic = self._new_topic(values)
            if len(self._topics) >= _MAX_TOPICS_REMEMBERED:
                self._topics.clear()
            self._topics[key] = topic
        return topic

    def _new_topic(self, values: tuple[Value, ...]) -> str:
        if any(values[index] is None for index in self._topic.indexes):
            raise MappingError("a column that its topic is made of is NULL")
        topic = (self._topic.render(values) or b"").decode(errors="replace")
        wrong = check_topic(topic)
        if wrong is not None:
            raise MappingError(f"topic {topic[:260]!r} is not legal: {wrong}")
        return topic


def is_reserved(name: str) -> bool:
    """Tell whether a header's name is ours, so that no row may set it."""
    return name in _RESERVED or name.startswith(_RESERVED_PREFIX)
