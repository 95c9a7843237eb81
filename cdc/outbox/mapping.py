"""Which column is what, and how a row of a given layout becomes an event."""

from __future__ import annotations

from binascii import Error as HexError
from binascii import unhexlify
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import MappingError
from cdc.outbox.event import Event
from cdc.outbox.layout import UNSENT, Layout, given
from cdc.outbox.row_headers import header_pairs
from cdc.outbox.stamp import Stamp
from cdc.outbox.topic import check_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.outbox.table_name import TableName
    from cdc.outbox.template import Template
    from cdc.wal.changes import Begin, Relation, Value

DEFAULT_TOPIC: Final = "outbox.event.{aggregatetype}"
"""Here, and only here, the braces name the column mapped as aggregate type."""

_EVENT_OVERHEAD_BYTES: Final = 200
"""What a record holds beside what the row brings: the batch header (61 bytes), its own
varints, and the names and values of the headers that are ours (at most 110 bytes)."""

_HEADER_OVERHEAD_BYTES: Final = 6

_MAX_TOPICS_REMEMBERED: Final = 4096
_HEX_PREFIX: Final = b"\\x"

_RESERVED: Final = ("id", "type")
_RESERVED_PREFIX: Final = "cdc."

_MANY: Final = 1024
_ORDINALS: Final = [b"%08X" % ordinal for ordinal in range(_MANY)]

_event_of: Final = partial(tuple.__new__, Event)
"""Makes an Event of its values in order: half the time of naming them."""


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


class Binding:
    """Turns rows of one layout into events.

    Attributes:
        forged_headers: header pairs left out because their names are ours.
        keyless: events without a key, which have no order among themselves.

    """

    def __init__(self, mapping: Mapping, relation: Relation, table: TableName) -> None:
        layout = Layout(relation, table)
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
        # One column alone tells the topic, as a rule. Where it does not, the last one
        # of the row is asked for in vain: keys are tuples then.
        indexes = self._topic.indexes
        self._topic_index = indexes[0] if len(indexes) == 1 else -1
        self._has_more_headers = bool(self._record_headers) or (
            self._row_headers is not None
        )
        # A column that is not mapped is any other one, picked to be overlooked.
        picked = (self._id, self._key, self._type, self._payload, self._partition_key)
        self._pick = itemgetter(*(at or 0 for at in picked))
        self._is_partial = None in picked[:-1]

    def stamp(self, transaction: Begin) -> Stamp:
        """Make what all events of a transaction carry, whatever table they are of."""
        return Stamp.of(transaction, self._epoch)

    def event(self, values: Sequence[Value], stamp: Stamp, ordinal: int) -> Event:
        """Make the event of a row.

        Whether it is its transaction's last is not known yet: then it gets
        :data:`cdc.outbox.event.LAST` put behind its headers.

        Args:
            values: in the layout's order.
            stamp: of its transaction.
            ordinal: which outbox row of the transaction it is, from 0.

        Raises:
            MappingError: the row cannot be an event.

        """
        transaction, prefix, xid, timestamp_ms = stamp
        index = _ORDINALS[ordinal] if ordinal < _MANY else b"%08X" % ordinal
        marks = (("cdc.position", prefix + index), xid)
        try:
            return self._event(values, marks, timestamp_ms)
        except MappingError as exc:
            raise MappingError(
                f"{self._named(values)}, transaction {transaction.xid}"
                f" at {transaction.commit_lsn}: {exc}"
            ) from exc

    def replayed(self, values: Sequence[Value], *, run_id: str, now_ms: int) -> Event:
        """Make the event of a row that was read from the table.

        It has the id, the type and the headers that it has or would have had from the
        WAL. Where it stood there is not known: in place of position and transaction it
        carries ``cdc.replay``.

        Args:
            values: in the layout's order, as the WAL would print them.
            run_id: what published it; the value of ``cdc.replay``, at most 80 bytes.
            now_ms: milliseconds since 1970; by the time of its commit a topic's
                retention could delete it before anybody reads it.

        Raises:
            MappingError: the row cannot be an event.

        """
        marks = (("cdc.replay", run_id.encode()),)
        try:
            return self._event(values, marks, now_ms)
        except MappingError as exc:
            raise MappingError(f"{self._named(values)}: {exc}") from exc

    def _event(
        self,
        values: Sequence[Value],
        marks: tuple[tuple[str, bytes], ...],
        timestamp_ms: int,
    ) -> Event:
        event_id, key, type_name, value, chosen = self._pick(values)
        if self._is_partial:
            event_id, key, type_name, value = self._mapped(values)
        if type(event_id) is not bytes:
            raise MappingError(
                "its id is NULL, and without an id it cannot be told from a repeat"
            )
        if self._bytea:
            key = self._raw(key, self._key)
            value = self._raw(value, self._payload)
            chosen = self._raw(chosen, self._partition_key)
        try:
            # A value that was not sent has no length.
            size = _EVENT_OVERHEAD_BYTES + len(event_id)
            size += len(type_name or b"") + len(key or b"") + len(value or b"")
            len(chosen or b"")
        except TypeError:
            raise MappingError(UNSENT) from None
        headers: list[tuple[str, bytes | None]] = [("id", event_id)]
        if self._type is not None:
            headers.append(("type", type_name))
        if self._has_more_headers:
            size += self._add_headers(headers, values)
        headers += marks
        if key is None:
            self._expect_payload(value)
        return _event_of(
            (
                event_id.decode("utf-8", "replace"),
                self._topics.get(values[self._topic_index]) or self._topic_of(values),
                key,
                value,
                headers,
                timestamp_ms,
                key if self._partition_key is None else chosen,
                size,
            )
        )

    def _expect_payload(self, value: bytes | None) -> None:
        """Take note of an event without a key, which has to have a payload at least."""
        self.keyless += 1
        if value is None:
            raise MappingError("it has neither key nor payload")

    def _mapped(self, values: Sequence[Value]) -> list[Any]:
        """Return id, key, type and payload, NULL for a role that no column has."""
        roles = (self._id, self._key, self._type, self._payload)
        return [None if at is None else values[at] for at in roles]

    def _named(self, values: Sequence[Value]) -> str:
        """Name a row for a message."""
        value = values[self._id] if self._id is not None else None
        if not isinstance(value, bytes):
            return f"a row of {self.table}"
        return f"event {value.decode(errors='replace')} of {self.table}"

    def _raw(self, value: Any, index: int | None) -> Any:
        """Return a value as it is, or what its hex says."""
        if not isinstance(value, bytes) or index not in self._bytea:
            return value
        if not value.startswith(_HEX_PREFIX):
            raise MappingError("a bytea value is not in hex format")
        try:
            return unhexlify(value[2:])
        except HexError as exc:
            raise MappingError(f"a bytea value is not valid hex ({exc})") from exc

    def _add_headers(
        self, headers: list[tuple[str, bytes | None]], values: Sequence[Value]
    ) -> int:
        """Add mapped headers, then the row's own; return their size in bytes."""
        start = len(headers)
        for name, template in self._record_headers:
            headers.append((name, template.render(values)))
        column = None
        if self._row_headers is not None:
            column = given(values[self._row_headers])
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

    def _topic_of(self, values: Sequence[Value]) -> str:
        """Return the topic of a row whose topic is not known by one column alone."""
        template = self._topic
        if template.constant is not None:
            return template.constant
        key = tuple([values[index] for index in template.indexes])
        topic = self._topics.get(key)
        if topic is None:
            topic = self._new_topic(values)
            if len(self._topics) >= _MAX_TOPICS_REMEMBERED:
                self._topics.clear()
            self._topics[key[0] if len(key) == 1 else key] = topic
        return topic

    def _new_topic(self, values: Sequence[Value]) -> str:
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
