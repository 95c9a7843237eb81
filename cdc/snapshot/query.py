"""The SQL that picks an outbox's rows and puts them in order.

The order is that of commits as far as the table still tells it. With
``track_commit_timestamp`` it is the commit's time, and within a transaction the
statement's number: savepoints have transaction ids of their own. Without it, it is the
transaction's id, which tells when a transaction first wrote and not when it committed.
Neither is certain: neighbours of one microsecond may be swapped, and a row that was
locked or changed since has lost its statement's number.

A row that does not say whether it lies inside a bound counts as inside: that repeats an
event, and never loses one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg import sql

from cdc.errors import RequirementMissing, SettingsError
from cdc.xid import WIDENED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.snapshot.bounds import Bounds, EventId, Since
    from cdc.snapshot.tables import OutboxTable

_COMMITTED: Final = "pg_catalog.pg_xact_commit_timestamp(xmin)"
_STATEMENT: Final = "cmin::text::int8"  # cid itself has no order


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What the reading snapshot knows of transactions.

    Attributes:
        xmax: its first transaction id not to have ended, 64 bits.
        tracks_commits: whether ``track_commit_timestamp`` is on.

    """

    xmax: int
    tracks_commits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the row of an event stands in the order.

    Attributes:
        table: where it was found.
        rank: the values of the order's expressions, as text; the last two tell its
            place in that table.

    """

    table: OutboxTable
    rank: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Bounds with their events looked up, for the tables of one snapshot.

    ``time_column`` is the name that was asked for, whether a table has it or not.
    """

    bounds: Bounds
    clock: Clock
    time_column: str
    since: Found | None
    until: Found | None


def counting(table: OutboxTable, picked: Picked) -> sql.Composed:
    """Return the query for how many rows are inside the bounds."""
    return sql.SQL("SELECT pg_catalog.count(*) FROM {}{}").format(
        _source(table), _where(table, picked)
    )


def reading(table: OutboxTable, picked: Picked) -> sql.Composed:
    """Return the query for the rows inside the bounds, in order.

    The columns are those of the table's relation. They stand there bare, so that each
    comes as its type prints it, which is what the stream sends.
    """
    columns = (sql.Identifier(column.name) for column in table.relation.columns)
    return sql.SQL("SELECT {} FROM {}{} ORDER BY {}").format(
        sql.SQL(", ").join(columns),
        _source(table),
        _where(table, picked),
        sql.SQL(", ").join(_order(picked.clock)),
    )


def finding(table: OutboxTable, event: EventId, clock: Clock) -> sql.Composed | None:
    """Return the query for an event's rank, None for a table without ids."""
    if table.id_column is None:
        return None
    ranks = [sql.SQL("({})::text").format(one) for one in _order(clock)]
    return sql.SQL("SELECT {} FROM {} WHERE {} = {} ORDER BY {} LIMIT 1").format(
        sql.SQL(", ").join(ranks),
        _source(table),
        sql.Identifier(table.id_column),
        event.text,
        sql.SQL(", ").join(_order(clock)),
    )


def _source(table: OutboxTable) -> sql.Composed:
    name = sql.Identifier(table.name.schema, table.name.name)
    # A child of a plain table is another relation in the stream.
    return sql.SQL("{}" if table.is_partitioned else "ONLY {}").format(name)


def _where(table: OutboxTable, picked: Picked) -> sql.Composable:
    conditions = list(_conditions(table, picked))
    if not conditions:
        return sql.SQL("")
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)


def _conditions(table: OutboxTable, picked: Picked) -> Iterator[sql.Composable]:
    bounds = picked.bounds
    if table.row_filter is not None:
        # Printed by the server, for a session with our search_path.
        yield sql.SQL(f"({table.row_filter})")
    if bounds.horizon is not None:
        yield sql.SQL("{} >= {}").format(_transaction(picked.clock), bounds.horizon)
    if bounds.key is not None:
        yield _of_key(table, bounds.key)
    if bounds.since is not None:
        yield _side(table, picked, bounds.since, picked.since, ">=")
    if bounds.until is not None:
        yield _side(table, picked, bounds.until, picked.until, "<=")


def _of_key(table: OutboxTable, key: str) -> sql.Composed:
    if table.key_column is None:
        raise SettingsError(
            f"{table.name} has no key column to compare with {key!r}",
            hint="map one with CDC_OUTBOX__COLUMNS__KEY, or leave the key out",
        )
    if "\0" in key:
        raise SettingsError("a key cannot have a NUL character")
    return sql.SQL("{} = {}").format(sql.Identifier(table.key_column), key)


def _side(
    table: OutboxTable,
    picked: Picked,
    end: Since,
    found: Found | None,
    operator: LiteralString,
) -> sql.Composed:
    if isinstance(end.value, datetime):
        return sql.SQL("({} {} {}::timestamptz) IS NOT FALSE").format(
            _time(table, picked), sql.SQL(operator), end.value.isoformat()
        )
    if found is None:
        raise AssertionError(f"{end} was not looked up")
    order, rank = _order(picked.clock), found.rank
    if found.table is not table:
        order, rank = order[:-2], rank[:-2]
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(order),
        sql.SQL(operator),
        sql.SQL(", ").join(sql.Literal(one) for one in rank),
    )


def _time(table: OutboxTable, picked: Picked) -> sql.Composable:
    told = [sql.SQL(_COMMITTED)] if picked.clock.tracks_commits else []
    column = [] if table.time_column is None else [sql.Identifier(table.time_column)]
    if not told and not column:
        raise RequirementMissing(
            f"{table.name} does not tell when a row was written: it has no column"
            f" {picked.time_column} with a time, and track_commit_timestamp is off",
            hint="bound it by an event's id or an LSN; for the next time: ALTER SYSTEM"
            " SET track_commit_timestamp = on, and a restart of Postgres",
        )
    times = [sql.SQL("{}::timestamptz").format(one) for one in (*told, *column)]
    return sql.SQL("COALESCE({})").format(sql.SQL(", ").join(times))


def _order(clock: Clock) -> list[sql.Composable]:
    """Return what rows are ordered by; the last two tell rows of one place apart."""
    transaction = _transaction(clock)
    by: list[sql.Composable] = [transaction, sql.SQL(_STATEMENT)]
    if clock.tracks_commits:
        # Too old to be remembered, or frozen: before all that is remembered.
        committed = sql.SQL("COALESCE({}, '-infinity')").format(sql.SQL(_COMMITTED))
        by = [committed, sql.SQL(_STATEMENT), transaction]
    return [*by, sql.SQL("tableoid"), sql.SQL("ctid")]


def _transaction(clock: Clock) -> sql.Composed:
    return sql.SQL(WIDENED).format(xmax=clock.xmax, xmin=sql.SQL("xmin"))
