"""Outbox rows and the events that a mapping makes of them, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.outbox import (
    DEFAULT_TOPIC,
    Binding,
    Columns,
    Event,
    Mapping,
    TableName,
    Template,
)
from cdc.wal.changes import Begin, Column, ColumnType, Relation
from slots.lsn import Lsn

if TYPE_CHECKING:
    from cdc.wal.changes import Value

OUTBOX = TableName("public", "outbox")
BEGUN = Begin(xid=742, commit_lsn=Lsn(0xABC), committed_at_us=1_700_000_000_123_456)
PLAIN = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))


def columns(**values: Value) -> tuple[Relation, tuple[Value, ...]]:
    relation = Relation(
        oid=1,
        schema="public",
        name="outbox",
        columns=tuple(
            Column(
                name.removesuffix("__bytea"),
                ColumnType.BYTEA if name.endswith("__bytea") else ColumnType.TEXT,
            )
            for name in values
        ),
    )
    return relation, tuple(values.values())


def make(mapping: Mapping, **values: Value) -> Event:
    defaults: dict[str, Value] = {
        "id": b"id-1",
        "aggregatetype": b"order",
        "aggregateid": b"k",
        "type": b"Placed",
        "payload": b"{}",
    }
    relation, row = columns(**(defaults | values))
    return streamed(mapping.bind(relation, OUTBOX), row)


def streamed(
    binding: Binding, row: tuple[Value, ...], *, begun: Begin = BEGUN, ordinal: int = 0
) -> Event:
    """Give the event of a row that was read from the WAL."""
    return binding.event(row, binding.stamp(begun), ordinal)


def bytes_of(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value
