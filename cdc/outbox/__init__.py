"""Outbox rows become events: which column is what, and what a record carries.

Payloads pass through as the bytes Postgres printed; they are never parsed.
"""

from cdc.outbox.event import LAST, Event, EventBatch
from cdc.outbox.mapping import DEFAULT_TOPIC, Binding, Columns, Mapping
from cdc.outbox.stamp import Stamp
from cdc.outbox.table_name import TableName, parse_tables
from cdc.outbox.template import Template
from cdc.outbox.topic import check_topic

__all__ = [
    "DEFAULT_TOPIC",
    "LAST",
    "Binding",
    "Columns",
    "Event",
    "EventBatch",
    "Mapping",
    "Stamp",
    "TableName",
    "Template",
    "check_topic",
    "parse_tables",
]
