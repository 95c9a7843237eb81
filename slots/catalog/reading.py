"""Read slots, settings and open transactions: always in one round trip.

Every column is asked for by name, and only where the server has it; what comes back has
the same keys from every version.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from slots.connect import translated
from slots.errors import ServerRefused, ServerUnavailable
from slots.lsn import Lsn
from slots.state import Blocker, Reading, Server, Slot, WalStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

BLOCKER_LIMIT: Final = 10
"""The oldest are enough to act on."""

_COLUMNS: Final = (
    (0, "name", "s.slot_name"),
    (0, "slot_type", "s.slot_type"),
    (0, "plugin", "s.plugin"),
    (0, "database", "s.database"),
    (0, "temporary", "s.temporary"),
    (0, "active", "s.active"),
    (0, "active_pid", "s.active_pid"),
    (0, "active_user", "a.usename"),
    (0, "active_application", "NULLIF(a.application_name, '')"),
    (0, "active_address", "pg_catalog.host(a.client_addr)"),
    (0, "active_state", "w.state"),
    (0, "active_reply_at", "w.reply_time"),
    (0, "xmin_age", "pg_catalog.age(s.xmin)"),
    (0, "catalog_xmin_age", "pg_catalog.age(s.catalog_xmin)"),
    (0, "restart_lsn", "s.restart_lsn"),
    (0, "confirmed_flush_lsn", "s.confirmed_flush_lsn"),
    (0, "wal_status", "s.wal_status"),
    (0, "safe_wal_bytes", "s.safe_wal_size"),
    (140000, "two_phase", "s.two_phase"),
    (160000, "conflicting", "s.conflicting"),
    (170000, "inactive_since", "s.inactive_since"),
    (170000, "invalidation_reason", "s.invalidation_reason"),
    (170000, "failover", "s.failover"),
    (170000, "synced", "s.synced"),
    (180000, "two_phase_at", "s.two_phase_at"),
    (140000, "decoded_transactions", "d.total_txns"),
    (140000, "statistics_reset_at", "d.stats_reset"),
)

_SLOTS: Final = """
SELECT {columns}
  FROM pg_catalog.pg_replication_slots AS s
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = s.active_pid
  LEFT JOIN pg_catalog.pg_stat_get_wal_senders() AS w ON w.pid = s.active_pid
  LEFT JOIN LATERAL pg_catalog.pg_stat_get_replication_slot(s.slot_name) AS d
         ON s.slot_type = 'logical'
"""

# A session shows its transaction id to everybody, the rest to pg_monitor only.
_BLOCKERS: Final = """
SELECT a.backend_xid::text::int8 AS xid, pg_catalog.age(a.backend_xid) AS age,
       a.pid, NULL::text AS gid, a.datname AS database, a.usename AS "user",
       NULLIF(a.application_name, '') AS application,
       pg_catalog.host(a.client_addr) AS address, a.state,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8
           AS open_s,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - a.query_start)::float8
           AS query_s
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.backend_xid IS NOT NULL
UNION ALL
SELECT p.transaction::text::int8, pg_catalog.age(p.transaction), NULL, p.gid,
       p.database, p.owner, NULL, NULL, 'prepared',
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::float8, NULL
  FROM pg_catalog.pg_prepared_xacts AS p
"""

_WAL_POSITION: Final = """
CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
     ELSE pg_catalog.pg_current_wal_lsn() END
"""

# Slots come first, so that the WAL position is never older than theirs: columns are
# computed from left to right.
_READING: Final = """
WITH blockers AS MATERIALIZED ({blockers})
SELECT pg_catalog.jsonb_build_object(
    'slots', COALESCE((SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(r)
                              ORDER BY r.name) FROM ({slots}) AS r), '[]'),
    'wal_position', {wal_position},
    'blockers', COALESCE((SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(b)
                                 ORDER BY b.age DESC)
                            FROM (SELECT * FROM blockers ORDER BY age DESC
                                   LIMIT {blocker_limit}) AS b), '[]'),
    'blocker_count', (SELECT pg_catalog.count(*) FROM blockers),
    'at', pg_catalog.clock_timestamp(),
    'started_at', pg_catalog.pg_postmaster_start_time(),
    'version', pg_catalog.current_setting('server_version_num')::int,
    'database', pg_catalog.current_database(),
    'role', current_user,
    'is_in_recovery', pg_catalog.pg_is_in_recovery(),
    'wal_level', pg_catalog.current_setting('wal_level'),
    'max_slots', pg_catalog.current_setting('max_replication_slots')::int,
    'slot_wal_limit', pg_catalog.pg_size_bytes(
        pg_catalog.current_setting('max_slot_wal_keep_size')),
    'max_wal', pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size')),
    'checkpoint_timeout', EXTRACT(epoch FROM
        pg_catalog.current_setting('checkpoint_timeout')::interval)::int,
    'idle_slot_timeout', EXTRACT(epoch FROM
        pg_catalog.current_setting('idle_replication_slot_timeout', true)::interval
        )::int,
    'synchronized_standby_slots',
        pg_catalog.current_setting('synchronized_standby_slots', true),
    'sees_sessions', pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
"""


async def read(connection: AsyncConnection[TupleRow]) -> Reading:
    """Read every slot of the cluster, and what judging them takes.

    Any role that may connect may read it; without pg_monitor the sessions of others
    come without address, state and times.
    """
    statement = (
        _READING.replace("{blockers}", _BLOCKERS)
        .replace("{slots}", _slots_query(connection))
        .replace("{wal_position}", _WAL_POSITION)
        .replace("{blocker_limit}", str(BLOCKER_LIMIT))
    )
    with translated():
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone()
    if row is None:
        raise ServerUnavailable("the server gave no reading")
    with _understood():
        found = row[0]
        return Reading(
            server=_server(found),
            slots=tuple(_slot(one) for one in found["slots"]),
            blockers=tuple(Blocker(**one) for one in found["blockers"]),
            blocker_count=found["blocker_count"],
        )


async def list_slots(connection: AsyncConnection[TupleRow]) -> tuple[Slot, ...]:
    """Return every slot of the cluster, by name."""
    return (await read(connection)).slots


async def get_slot(connection: AsyncConnection[TupleRow], name: str) -> Slot | None:
    """Return a slot, None when there is none of that name."""
    query = _slots_query(connection) + " WHERE s.slot_name::text = %s"
    statement = f"SELECT pg_catalog.to_jsonb(r) FROM ({query}) AS r"  # noqa: S608 - no input
    with translated():
        cursor = await connection.execute(statement.encode(), (name,))
        row = await cursor.fetchone()
    with _understood():
        return None if row is None else _slot(row[0])


async def wal_position(connection: AsyncConnection[TupleRow]) -> Lsn:
    """Return the end of the WAL written; on a standby, of the WAL replayed."""
    statement = f"SELECT ({_WAL_POSITION})::text"
    with translated():
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone()
    if row is None or row[0] is None:
        raise ServerUnavailable("the server has replayed no WAL yet")
    return Lsn.parse(row[0])


@contextmanager
def _understood() -> Iterator[None]:
    """Make an error of ours of an answer that no known version gives."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as exc:
        raise ServerRefused(
            f"the server describes its slots in an unknown way: {exc}",
            hint="is this Postgres 14 to 18? a newer walferry may know it",
        ) from exc


def _slots_query(connection: AsyncConnection[TupleRow]) -> str:
    version = connection.info.server_version
    columns = ", ".join(
        f"{expression if version >= since else 'NULL'} AS {name}"
        for since, name, expression in _COLUMNS
    )
    return _SLOTS.replace("{columns}", columns)


def _slot(row: Mapping[str, Any]) -> Slot:
    return Slot(
        **{
            **row,
            "active_reply_at": _moment(row["active_reply_at"]),
            "restart_lsn": _lsn(row["restart_lsn"]),
            "confirmed_flush_lsn": _lsn(row["confirmed_flush_lsn"]),
            "two_phase_at": _lsn(row["two_phase_at"]),
            "wal_status": WalStatus(row["wal_status"]) if row["wal_status"] else None,
            "inactive_since": _moment(row["inactive_since"]),
            "statistics_reset_at": _moment(row["statistics_reset_at"]),
        }
    )


def _server(row: Mapping[str, Any]) -> Server:
    limit = row["slot_wal_limit"]
    standbys = row["synchronized_standby_slots"]
    return Server(
        at=datetime.fromisoformat(row["at"]),
        started_at=datetime.fromisoformat(row["started_at"]),
        version=row["version"],
        database=row["database"],
        role=row["role"],
        is_in_recovery=row["is_in_recovery"],
        wal_position=_lsn(row["wal_position"]),
        wal_level=row["wal_level"],
        max_slots=row["max_slots"],
        slot_wal_limit_bytes=limit if limit >= 0 else None,
        max_wal_bytes=row["max_wal"],
        checkpoint_timeout_s=row["checkpoint_timeout"],
        idle_slot_timeout_s=row["idle_slot_timeout"],
        synchronized_standby_slots=None if standbys is None else _names(standbys),
        sees_sessions=row["sees_sessions"],
    )


def _names(listed: str) -> tuple[str, ...]:
    """Split a list of slot names, which need no quotes but may have them."""
    names = (name.strip().strip('"') for name in listed.split(","))
    return tuple(name for name in names if name)


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
