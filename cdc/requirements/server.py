"""What the server itself has to be: read in one query, judged without one.

The query asks for nothing that a role with LOGIN alone may not see; what such a role
cannot see comes back as None and is judged as unknown, never as wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg.rows import class_row

from cdc import finding
from cdc.requirements import statements
from cdc.requirements.wanted import WAL2JSON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.finding import Finding
    from cdc.requirements.wanted import Wanted

OLDEST: Final = 140000
_DECODES_ON_STANDBY: Final = 160000

_QUERY: Final = """
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
       pg_catalog.current_setting('server_version') AS version_text,
       pg_catalog.current_setting('wal_level') AS wal_level,
       pg_catalog.current_setting('server_encoding') AS encoding,
       pg_catalog.current_database()::text AS database,
       pg_catalog.pg_is_in_recovery() AS is_standby,
       CURRENT_USER::text AS role,
       EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication')
           AS has_rds_role,
       (SELECT system_identifier FROM pg_catalog.pg_control_system())::text
           AS system_id,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
            ELSE ('x' || pg_catalog.substr(
                      pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()),
                      1, 8))::bit(32)::int
       END AS timeline,
       pg_catalog.current_setting('max_replication_slots')::int AS max_slots,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots)::int
           AS used_slots,
       pg_catalog.current_setting('max_wal_senders')::int AS max_wal_senders,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication)::int
           AS used_wal_senders,
       (SELECT setting::bigint FROM pg_catalog.pg_settings
         WHERE name = 'max_slot_wal_keep_size') AS slot_wal_keep_mb,
       (SELECT setting::bigint FROM pg_catalog.pg_settings
         WHERE name = 'wal_sender_timeout') AS wal_sender_timeout_ms,
       (SELECT setting::bigint FROM pg_catalog.pg_settings
         WHERE name = 'idle_replication_slot_timeout') AS idle_slot_timeout_s,
       (SELECT setting FROM pg_catalog.pg_settings
         WHERE name = 'output_plugin_libraries') AS plugin_libraries,
       pg_catalog.current_setting('track_commit_timestamp') = 'on'
           AS tracks_commits,
       ARRAY(SELECT gid FROM pg_catalog.pg_prepared_xacts
              WHERE prepared < pg_catalog.now() - interval '10 minutes'
              ORDER BY prepared) AS old_prepared,
       pg_catalog.pg_backend_pid() AS backend_pid,
       pg_catalog.clock_timestamp() AS clock
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server as one query saw it; None where our role may not look."""

    version: int
    version_text: str
    wal_level: str
    encoding: str
    database: str
    is_standby: bool
    role: str
    has_rds_role: bool
    system_id: str
    timeline: int
    max_slots: int
    used_slots: int
    max_wal_senders: int
    used_wal_senders: int
    slot_wal_keep_mb: int
    wal_sender_timeout_ms: int
    idle_slot_timeout_s: int | None
    plugin_libraries: str | None
    tracks_commits: bool
    old_prepared: list[str]
    backend_pid: int
    clock: datetime


async def read_server(conn: AsyncConnection[TupleRow]) -> Server:
    """Ask the server what it is."""
    async with conn.cursor(row_factory=class_row(Server)) as cursor:
        await cursor.execute(_QUERY)
        server = await cursor.fetchone()
    if server is None:
        raise AssertionError("a SELECT without FROM returned no row")
    return server


def demands(server: Server, wanted: Wanted) -> Iterator[Finding]:
    """Judge what a run cannot do without."""
    yield _version(server)
    yield _standby(server)
    yield _wal_level(server)
    yield _encoding(server, wanted)
    yield from _plugin_listed(server, wanted)


def room(server: Server, *, needs_slot: bool, needs_wal_sender: bool) -> list[Finding]:
    """Judge whether a slot and a walsender are left for us."""
    return [
        _free(server, "max_replication_slots", server.used_slots, needed=needs_slot),
        _free(
            server, "max_wal_senders", server.used_wal_senders, needed=needs_wal_sender
        ),
    ]


def listed_libraries(setting: str) -> list[str]:
    """Read the names in ``output_plugin_libraries`` as the server does."""
    return [
        quoted.replace('""', '"') or plain
        for quoted, plain in re.findall(r'"((?:[^"]|"")*)"|([^\s,"]+)', setting)
    ]


def _version(server: Server) -> Finding:
    name = "postgres.version"
    if server.version < OLDEST:
        return finding.failure(
            name,
            f"Postgres {server.version_text} is too old",
            "upgrade the server to Postgres 14 or later",
        )
    return finding.ok(name, f"Postgres {server.version_text}")


def _standby(server: Server) -> Finding:
    name = "postgres.primary"
    primary = "connect to the primary: add target_session_attrs=read-write to the DSN"
    if not server.is_standby:
        return finding.ok(name, "a primary")
    if server.version < _DECODES_ON_STANDBY:
        return finding.failure(
            name, "a standby, which cannot decode before Postgres 16", primary
        )
    return finding.warning(
        name,
        "a standby: its slot is lost when the primary removes rows it needs"
        " (hot_standby_feedback), and publications are made on the primary",
        primary,
    )


def _wal_level(server: Server) -> Finding:
    name = "postgres.wal_level"
    if server.wal_level == "logical":
        return finding.ok(name, "wal_level is logical")
    return finding.failure(
        name,
        f"wal_level is {server.wal_level}, decoding needs logical",
        "ALTER SYSTEM SET wal_level = 'logical'; then restart Postgres"
        " (Amazon RDS, Aurora: rds.logical_replication = 1; Cloud SQL:"
        " cloudsql.logical_decoding = on; then restart)",
    )


def _encoding(server: Server, wanted: Wanted) -> Finding:
    name = "postgres.encoding"
    seen = f"database {server.database} is encoded in {server.encoding}"
    if server.encoding == "SQL_ASCII":
        return finding.failure(
            name,
            f"{seen}, which says nothing about what its bytes mean",
            f"dump {server.database} and restore it into a database made with"
            " ENCODING 'UTF8' TEMPLATE template0",
        )
    if wanted.plugin == WAL2JSON and server.encoding != "UTF8":
        return finding.failure(
            name,
            f"{seen}, and wal2json would send its bytes unconverted",
            "use the plugin that converts: CDC_SLOT__PLUGIN=pgoutput, with a slot and"
            " a publication of its own (`cdc init`)",
        )
    return finding.ok(name, seen)


def _plugin_listed(server: Server, wanted: Wanted) -> Iterator[Finding]:
    if server.plugin_libraries is None:
        return
    listed = listed_libraries(server.plugin_libraries)
    if wanted.plugin in listed:
        yield finding.ok(
            "plugin.allowed", f"output_plugin_libraries lists {wanted.plugin}"
        )
    else:
        yield plugin_not_allowed(wanted.plugin, listed)


def plugin_not_allowed(plugin: str, listed: list[str] | None = None) -> Finding:
    """Return the finding for a plugin that the server refuses to load."""
    shown = "" if listed is None else f" ({', '.join(listed) or 'it is empty'})"
    # A list kept as one quoted string is one wrong name: start again from the default.
    kept = [name for name in listed or [] if "," not in name]
    return finding.failure(
        "plugin.allowed",
        f"the server may not load {plugin}: output_plugin_libraries does not list it"
        + shown,
        statements.allow_plugin(plugin, kept),
    )


def more_room(server: Server, setting: str) -> str:
    """Return how to get a slot or a walsender more."""
    limit = server.max_slots if "slots" in setting else server.max_wal_senders
    return (
        f"ALTER SYSTEM SET {setting} = {limit + 10}; then restart Postgres,"
        " or free one (`slots list`)"
    )


def _free(server: Server, setting: str, taken: int, *, needed: bool) -> Finding:
    limit = server.max_slots if "slots" in setting else server.max_wal_senders
    name = f"postgres.{setting}"
    seen = f"{taken} of {setting} = {limit} in use"
    if not needed or taken < limit:
        return finding.ok(name, seen)
    return finding.failure(
        name, f"{seen}, none is left for this relay", more_room(server, setting)
    )
