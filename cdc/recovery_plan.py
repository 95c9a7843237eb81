"""Which rows a resnapshot has to look at, and whether it may trust what is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc.claim import first_position, refuse_standby, stored_position
from cdc.errors import OperatorNeeded, RequirementMissing, SettingsError
from cdc.position import (
    Disagreement,
    Position,
    agree,
    continued,
    horizon_at,
    read_back_from_ms,
)
from cdc.proof import contradiction, has_witness
from cdc.requirements.history import see
from cdc.requirements.tables import read_tables
from cdc.snapshot import Bounds, Since, open_snapshot, parse_since
from slots.connect import translated
from slots.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import TableName
    from cdc.position import Seen
    from cdc.session import Source
    from cdc.sinks import PositionStore

_SKEW_MS = 300_000
"""Clocks of the server and of the brokers may differ by so much."""

_IS_UUID = """
SELECT a.atttypid = 'pg_catalog.uuid'::pg_catalog.regtype
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND a.attname = %s
"""

FIRST = "first"
"""The bounds of a first start: every row there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a resnapshot goes by.

    Attributes:
        position: where the relay is, with the epoch that begins.
        bounds: of the rows to look at.
        bounds_given: as they were asked for.
        read_back_from_ms: what the sink held before this time need not be read.
        lost_from: where the old slot was left, None on another history.
        is_ours: the slot was made by a resnapshot that was cut off.
        ids_are_unique: an id tells the row, whatever table it is of. Where several
            tables may have the same one, what the sink holds says nothing of a row:
            every candidate is published then.

    """

    position: Position
    bounds: Bounds
    bounds_given: Mapping[str, str]
    read_back_from_ms: int
    lost_from: Lsn | None
    is_ours: bool
    ids_are_unique: bool = True

    def refuse_drop(self, *, told: bool) -> None:
        """Raise OperatorNeeded when the slot may not be dropped."""
        if not told and not self.is_ours:
            raise OperatorNeeded(
                f"slot {self.position.slot} exists; only a new one has a snapshot",
                hint="to drop it and make it anew: cdc resnapshot --yes",
            )


async def plan_recovery(
    connection: AsyncConnection[TupleRow],
    line: AsyncConnection[TupleRow],
    store: PositionStore,
    source: Source,
    *,
    bounds: Mapping[str, str],
) -> Plan:
    """Make the plan.

    Args:
        connection: an ordinary one that may read the tables.
        line: the replication connection that holds the lock.
        store: entered.
        source: slot, publication, tables, columns.
        bounds: as :class:`cdc.resnapshot.Request` has them.

    Raises:
        OperatorNeeded: what is stored means nothing on this history, so that bounds
            have to be given.
        RequirementMissing: no position is stored, and no bounds are given.
        SettingsError: bounds that cannot be read.

    """
    known = await stored_position(store, source.name)
    seen = await see(connection, line, source.wanted)
    if known is None:
        plan = _without_position(source, seen, bounds)
        unique = await _ids_are_unique(connection, source)
        return replace(plan, ids_are_unique=unique)
    refuse_standby(known, seen)
    unfinished = known.unfinished
    if unfinished is not None and not bounds:
        bounds = unfinished.bounds
    doubt = await doubt_about(connection, known, seen, source)
    position = _carried_on(known, seen, source, is_same=not doubt)
    # What is carried on, not what is stored: behind the point at which a promoted
    # standby left our timeline, transaction ids are given out a second time.
    horizon, since = _bounds_of(position, bounds, doubt)
    return Plan(
        position=position,
        bounds=Bounds(horizon=horizon, since=since),
        bounds_given=bounds,
        read_back_from_ms=_read_back_from(position, horizon, since),
        lost_from=None if doubt else known.end_lsn,
        is_ours=unfinished is not None,
        ids_are_unique=await _ids_are_unique(connection, source),
    )


def _without_position(source: Source, seen: Seen, bounds: Mapping[str, str]) -> Plan:
    if not bounds:
        raise RequirementMissing(
            f"no position is stored for relay {source.name}: what is missing is not"
            " known",
            hint="bound it yourself: cdc resnapshot --since TIME, or --all",
        )
    horizon, since = _bounds_of(None, bounds, "")
    return Plan(
        position=replace(first_position(source.name, source.wanted, seen), term=0),
        bounds=Bounds(horizon=horizon, since=since),
        bounds_given=bounds,
        read_back_from_ms=_since_ms(since),
        lost_from=None,
        is_ours=False,
    )


async def doubt_about(
    connection: AsyncConnection[TupleRow], known: Position, seen: Seen, source: Source
) -> str:
    """Return why the stored horizon means nothing here; empty when it does.

    Args:
        connection: an ordinary one that may read the tables.
        known: what is stored.
        seen: what the server says of itself.
        source: slot, publication, tables, columns.

    """
    try:
        agree(known, seen)
    except Disagreement as exc:
        if not exc.is_same_history:
            return str(exc)
    known = continued(known, seen)
    against = await contradiction(connection, known)
    if against:
        return f"this server's history is another one: {against}"
    if known.anchor is None or known.horizon is None:
        return ""
    if await has_witness(
        connection, known.anchor, await _id_columns(connection, source)
    ):
        return ""
    if await _has_older_rows(connection, known.horizon, source):
        return (
            f"event {known.anchor.event_id}, the last one delivered, is not in the"
            " table, and older rows are: whether this is the history it was delivered"
            " from cannot be told"
        )
    return ""


async def _id_columns(
    connection: AsyncConnection[TupleRow], source: Source
) -> list[tuple[TableName, str]]:
    version = connection.info.server_version
    tables = await read_tables(connection, source.wanted, version)
    return [
        (table.table_name, name)
        for table in tables
        for name in source.mapping.columns.id
        if name in table.columns
    ]


async def _ids_are_unique(
    connection: AsyncConnection[TupleRow], source: Source
) -> bool:
    """Tell whether only one table can have an id: it is alone, or they are uuids."""
    if len(source.wanted.tables) == 1:
        return True
    for table, name in await _id_columns(connection, source):
        with translated():
            cursor = await connection.execute(
                _IS_UUID, [table.schema, table.name, name]
            )
            row = await cursor.fetchone()
        if row is None or not row[0]:
            return False
    return True


async def _has_older_rows(
    connection: AsyncConnection[TupleRow], horizon: int, source: Source
) -> bool:
    async with open_snapshot(connection, None) as snapshot:
        every = await snapshot.count(source.wanted, source.mapping, Bounds())
        newer = await snapshot.count(
            source.wanted, source.mapping, Bounds(horizon=horizon)
        )
    return newer < every


def _carried_on(
    known: Position, seen: Seen, source: Source, *, is_same: bool
) -> Position:
    if is_same:
        position = replace(continued(known, seen), term=known.term)
        return replace(position, slot=source.wanted.slot, plugin=source.wanted.plugin)
    fresh = first_position(source.name, source.wanted, seen)
    return replace(
        fresh,
        term=known.term,
        epoch=known.epoch + (known.unfinished is None),
        unfinished=known.unfinished,
    )


def _bounds_of(
    known: Position | None, bounds: Mapping[str, str], doubt: str
) -> tuple[int | None, Since | None]:
    """Return horizon and since of the rows to look at; None for no such bound."""
    if "all" in bounds or FIRST in bounds:
        return None, None
    if "since" not in bounds:
        if doubt or known is None:
            raise OperatorNeeded(
                f"{doubt}; the stored position does not bound what is missing here",
                hint="cdc resnapshot --since TIME, or --all: with the time of the"
                " backup, or of the failover, less a margin",
            )
        return known.horizon, None
    since = parse_since(bounds["since"])
    if not isinstance(since.value, Lsn):
        return None, since
    horizon = None if known is None or doubt else horizon_at(known, since.value)
    if horizon is None:
        raise SettingsError(
            f"--since {since.value}: no sample of transactions is as old as that",
            hint="give a time: cdc resnapshot --since 2026-01-31T12:00:00Z",
        )
    return horizon, None


def _read_back_from(known: Position, horizon: int | None, since: Since | None) -> int:
    if horizon is not None:
        return max(0, read_back_from_ms(known, horizon) - _SKEW_MS)
    return _since_ms(since)


def _since_ms(since: Since | None) -> int:
    at_ms = None if since is None else since.at_ms
    return 0 if at_ms is None else max(0, at_ms - _SKEW_MS)
