"""Outbox rows and the events that a mapping makes of them, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.outbox import DEFAULT_TOPIC, Columns, Event, Mapping, TableName, Template
from cdc.wal.changes import Begin, Column, ColumnType, Relation
from cdc.wal.transaction import Row
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
    return make_in_transaction(mapping, values, last=True)


def make_in_transaction(
    mapping: Mapping, values: dict[str, Value], *, last: bool
) -> Event:
    defaults: dict[str, Value] = {
        "id": b"id-1",
        "aggregatetype": b"order",
        "aggregateid": b"k",
        "type": b"Placed",
        "payload": b"{}",
    }
    relation, row = columns(**(defaults | values))
    binding = mapping.bind(relation, OUTBOX)
    return binding.event(Row(BEGUN, 0, last, relation, row))


def bytes_of(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value
