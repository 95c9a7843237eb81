"""Parts for unit tests of the relay: frames as pgoutput sends them, routes, a relay."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from cdc.intake import Intake
from cdc.keeper import PositionKeeper
from cdc.metrics import RelayMetrics
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, TableName, Template
from cdc.position import Position
from cdc.relay import Relay
from cdc.requirements import SourceFacts
from cdc.routes import Routes
from cdc.testing import MemoryPositions
from cdc.wal import pgoutput
from cdc.wal.frames import Keepalive, WalData
from slots.lsn import Lsn

if TYPE_CHECKING:
    from cdc.position import Gate
    from cdc.sinks import Sink
    from cdc.testing import ScriptedStream
    from cdc.wal.frames import Frame

OUTBOX_OID = 4711
COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
COMMIT_SIZE = 48


def relation(oid: int = OUTBOX_OID, name: str = "outbox") -> WalData:
    columns = b"".join(
        b"\x00" + column.encode() + b"\0" + struct.pack("!Ii", 25, -1)
        for column in COLUMNS
    )
    body = struct.pack("!cI", b"R", oid) + b"public\0" + name.encode() + b"\0d"
    return body + struct.pack("!H", len(COLUMNS)) + columns


def insert(*values: str | None, oid: int = OUTBOX_OID) -> WalData:
    row = b"".join(
        b"n"
        if value is None
        else b"t" + struct.pack("!I", len(value.encode())) + value.encode()
        for value in values
    )
    head = struct.pack("!cIcH", b"I", oid, b"N", len(values))
    return head + row


def event(number: int, key: str = "k", *, oid: int = OUTBOX_OID) -> WalData:
    return insert(f"id-{number}", "order", key, "Placed", f'{{"n": {number}}}', oid=oid)


def transaction(at: int, *rows: WalData, xid: int = 7) -> list[Frame]:
    """Give a transaction whose commit lies at ``at`` and that ends behind it."""
    return [
        struct.pack("!cQqI", b"B", at, 0, xid),
        *rows,
        struct.pack("!cBQQq", b"C", 0, at, at + COMMIT_SIZE, 0),
    ]


def keepalive(position: int, *, reply: bool = False) -> Keepalive:
    return Keepalive(Lsn(position), 0, reply)


def facts() -> SourceFacts:
    return SourceFacts(
        server_version=180000,
        system_id="1",
        timeline=1,
        database="db",
        server_encoding="UTF8",
        slot=cast("Any", None),
        tables={TableName("public", "outbox"): OUTBOX_OID},
        partitioned=frozenset(),
        bytea_types=frozenset({17}),
        wal_sender_timeout_s=60.0,
    )


def stored_position(end_lsn: int = 0, **changes: Any) -> Position:
    """Give a position of these parts' server."""
    facts_of: dict[str, Any] = {
        "name": "db.walferry",
        "term": 1,
        "epoch": 0,
        "system_id": "1",
        "timeline": 1,
        "database": "db",
        "slot": "walferry",
        "plugin": "pgoutput",
        "end_lsn": Lsn(end_lsn),
    }
    return Position(**facts_of | changes)


def relay(
    stream: ScriptedStream,
    sink: Sink,
    metrics: RelayMetrics | None = None,
    *,
    window_bytes: int = 1 << 20,
    store: MemoryPositions | None = None,
    gate: Gate | None = None,
) -> Relay:
    mapping = Mapping(columns=Columns(), topic=Template.parse(DEFAULT_TOPIC))
    metrics = metrics or RelayMetrics()
    # pgoutput names tables by oid: the catalog is never asked.
    routes = Routes(mapping, facts(), cast("Any", None), _covered)
    return Relay(
        stream=stream,
        intake=Intake(pgoutput.Decoder(), routes, metrics, gate),
        sink=sink,
        keeper=PositionKeeper(
            store or MemoryPositions(), stored_position(stream.confirmed)
        ),
        metrics=metrics,
        window_bytes=window_bytes,
    )


async def _covered() -> None:
    return
