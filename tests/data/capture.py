"""Capture what real walsenders send for one script of statements.

    python -m tests.data.capture

writes ``<plugin>-<major>.frames.gz``: CopyData payloads, keepalives included, each
behind its length as a big-endian 32-bit number. Needs the servers of ``make test``.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from cdc.local import LocalPostgres
from cdc.wal import frames, pgoutput, wal2json
from cdc.wal.frames import Keepalive
from slots.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdc.wal.frames import Frame

FOLDER = Path(__file__).parent
CAPTURES = (("pgoutput", "15"), ("wal2json", "15"), ("pgoutput", "18"))

SETUP = """
CREATE TYPE mood AS ENUM ('fine', 'so so');
CREATE DOMAIN amount AS numeric CHECK (VALUE IS NULL OR VALUE > -1e60);
CREATE DOMAIN raw AS bytea;
CREATE TABLE outbox (id bigserial PRIMARY KEY, i2 int2, i4 int4, i8 int8, n numeric,
    f4 float4, f8 float8, b bool, t text, v varchar(20), c char(5), raw bytea,
    draw raw, j json, jb jsonb, u uuid, ts timestamp, tz timestamptz, d date,
    iv interval, a int[], at text[], m mood, am amount, ip inet, r int4range,
    mo money, bi bit(4));
CREATE TABLE parted (id int, at date, note text, PRIMARY KEY (id, at))
    PARTITION BY RANGE (at);
CREATE TABLE parted_old PARTITION OF parted
    FOR VALUES FROM ('2000-01-01') TO ('2020-01-01');
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
CREATE TABLE noise (id int, filler text);
ALTER TABLE outbox ALTER t SET STORAGE EXTERNAL;
CREATE PUBLICATION walferry FOR ALL TABLES WITH (publish_via_partition_root = true);
"""

SCRIPT = """
INSERT INTO outbox DEFAULT VALUES;
INSERT INTO outbox (i2, i4, i8, n, f4, f8, b) VALUES
    (-32768, 2147483647, 9223372036854775807, 123456789012345678.0123456789, 1.5,
     -0.0, true), (0, 0, 0, 1e50, 1e-10, 1e20, false),
    (-1, -1, -9223372036854775808, -1e400, 3.4028235e38, 1.7976931348623157e308, NULL),
    (1, 1, 1, 1e-400, 1e-45, 5e-324, NULL), (1, 1, 1, -0.00, '-0', '-0', NULL);
INSERT INTO outbox (n, f4, f8) VALUES ('NaN', 'Infinity', '-Infinity');
INSERT INTO outbox (t, v, c) VALUES
    (E'tab\\t nl\\n q" bs\\\\ \\x01\\x1f', 'zoë 😀', 'ab');
INSERT INTO outbox (raw, draw) VALUES ('\\x00ff5c78', '\\x00ff'), ('\\x', '\\x');
INSERT INTO outbox (j, jb) VALUES ('{"b" :1,"b":  2, "e": "\\u20ac\\ud83d\\ude00"}',
    '{"b": 1, "a": [1.50, null, {"x": "y"}]}'), ('null', 'null'),
    ('{"nul": "\\u0000", "lone": "\\ud83d"}', '{"n": 1e400}'), ('1e999', '"\\u2028"');
INSERT INTO outbox (u, ts, tz, d, iv) VALUES ('23a2e0f8-2d69-45d3-8a89-9f7d6102abac',
    'infinity', '0044-03-15 BC', '5874897-12-31', '1 year -2 days 03:04:05.6'),
    (NULL, '2024-02-29 23:59:60', '294276-12-31', '-infinity', NULL);
INSERT INTO outbox (a, at, m, am, ip, r, mo, bi) VALUES ('{1,NULL,3}', '{"a,b",NULL}',
    'so so', 7, '::1/64', '[1,5)', 12.34, B'1010');
INSERT INTO outbox (t) VALUES (repeat('toast', 4000));
UPDATE outbox SET v = 'changed' WHERE id = (SELECT max(id) FROM outbox);
UPDATE outbox SET id = id + 1000 WHERE id = (SELECT max(id) FROM outbox);
DELETE FROM outbox WHERE id = 1;
BEGIN; INSERT INTO outbox (t) VALUES ('kept'); SAVEPOINT s;
    INSERT INTO outbox (t) VALUES ('given up'); ROLLBACK TO SAVEPOINT s;
    INSERT INTO outbox (t) VALUES ('kept too'); COMMIT;
BEGIN; INSERT INTO outbox (t) VALUES ('rolled back'); ROLLBACK;
BEGIN; INSERT INTO outbox (t) VALUES ('two phases'); PREPARE TRANSACTION 'p';
COMMIT PREPARED 'p';
SELECT pg_logical_emit_message(false, 'other', 'not transactional');
BEGIN; SELECT pg_logical_emit_message(true, 'other', 'transactional');
    INSERT INTO outbox (t) VALUES ('beside a message'); COMMIT;
INSERT INTO parted VALUES (1, '2010-01-01', 'old'), (2, '2030-01-01', 'rest');
INSERT INTO noise SELECT n, 'filler' FROM generate_series(1, 5) n;
ALTER TABLE outbox ADD note text DEFAULT 'd';
INSERT INTO outbox (t) VALUES ('with a note');
ALTER TABLE outbox DROP COLUMN note;
INSERT INTO outbox (t) VALUES ('without');
ALTER TABLE outbox RENAME v TO w;
INSERT INTO outbox (t, w) VALUES ('renamed', 'x');
BEGIN; INSERT INTO outbox (t) VALUES ('before'); TRUNCATE outbox, noise;
    INSERT INTO outbox (t) VALUES ('after'); COMMIT;
BEGIN; INSERT INTO outbox (t) VALUES ('old layout');
    ALTER TABLE outbox ADD z int DEFAULT 9;
    INSERT INTO outbox (t) VALUES ('new layout'); COMMIT;
ALTER TABLE outbox DROP COLUMN z;
"""

# Two connections in turn: who began first commits last, with a savepoint in between.
INTERLEAVED = (
    (0, "BEGIN"),
    (0, "INSERT INTO outbox (t) VALUES ('first 0')"),
    (1, "BEGIN"),
    (1, "INSERT INTO outbox (t) VALUES ('second 0')"),
    (0, "SAVEPOINT s"),
    (0, "INSERT INTO outbox (t) VALUES ('first 1')"),
    (1, "INSERT INTO outbox (t) VALUES ('second 1')"),
    (1, "COMMIT"),
    (0, "INSERT INTO outbox (t) VALUES ('first 2')"),
    (0, "COMMIT"),
)

# What a replicated transaction looks like; it is the last one, too.
REPLICATED = """
SELECT pg_replication_origin_create('elsewhere');
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN; SELECT pg_replication_origin_xact_setup('0/1234', '2026-01-01 00:00:00+00');
    INSERT INTO outbox (t) VALUES ('from elsewhere'); COMMIT;
"""


def path_of(plugin: str, major: str) -> Path:
    """Return where a capture is kept."""
    return FOLDER / f"{plugin}-{major}.frames.gz"


def captured(plugin: str, major: str) -> list[bytes]:
    """Return the plugin's messages of a capture, in order."""
    views = [memoryview(frame) for frame in captured_frames(plugin, major)]
    return [frame for frame in map(frames.parse, views) if isinstance(frame, bytes)]


def captured_frames(plugin: str, major: str) -> list[bytes]:
    """Return the frames of a capture as they came, in order."""
    return list(_frames(gzip.decompress(path_of(plugin, major).read_bytes())))


def _frames(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("!I", data, offset)
        offset += 4 + length
        yield data[offset - length : offset]


async def capture(server: LocalPostgres, plugin: str, major: str) -> int:
    """Run the script on a server and keep what its walsender says of it."""
    dsn = server.dsn()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as work:
        await work.execute(SETUP.encode())
        await work.execute(
            "SELECT pg_create_logical_replication_slot('capture', %s)", [plugin]
        )
        await _run(work, SCRIPT)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
            for number, statement in INTERLEAVED:
                await (work, other)[number].execute(statement.encode())
        await _run(work, REPLICATED)
        row = await (await work.execute("SELECT pg_current_wal_lsn()::text")).fetchone()
        assert row is not None
        kept = await _read(dsn, plugin, Lsn.parse(row[0]))
    packed = b"".join(struct.pack("!I", len(frame)) + frame for frame in kept)
    path_of(plugin, major).write_bytes(gzip.compress(packed, mtime=0))
    return len(kept)


async def _run(work: psycopg.AsyncConnection[Any], script: str) -> None:
    for line in script.replace("\n    ", " ").splitlines():
        for statement in line.split(";") if line.startswith("BEGIN") else [line]:
            if statement.strip(" ;"):
                await work.execute(statement.encode())


async def _read(dsn: str, plugin: str, until: Lsn) -> list[bytes]:
    asked = (
        wal2json.options([]) if plugin == "wal2json" else pgoutput.options("walferry")
    )
    if plugin == "pgoutput":
        asked["messages"] = "true"
    given = ", ".join(f"\"{name}\" '{value}'" for name, value in asked.items())
    pins = "-c bytea_output=hex -c DateStyle=ISO -c TimeZone=UTC -c search_path="
    stream = await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, replication="database", options=pins
    )
    statement = f"START_REPLICATION SLOT capture LOGICAL 0/0 ({given})"
    await stream.execute(statement.encode())
    kept: list[bytes] = []
    async with asyncio.timeout(30):
        while True:
            size, data = stream.pgconn.get_copy_data(1)
            if size == 0:
                await asyncio.sleep(0.01)
                stream.pgconn.consume_input()
                continue
            kept.append(bytes(data))
            if _is_end(frames.parse(data), until):
                break
    await stream.close()
    return kept


def _is_end(frame: Frame, until: Lsn) -> bool:
    return isinstance(frame, Keepalive) and frame.wal_end >= until


def main() -> None:
    """Capture from each server in turn."""
    for plugin, major in CAPTURES:
        with LocalPostgres(
            major, settings={"fsync": "off", "max_prepared_transactions": "5"}
        ) as server:
            count = asyncio.run(capture(server, plugin, major))
            print(f"{path_of(plugin, major).name}: {count} frames")  # noqa: T201 - a tool


if __name__ == "__main__":
    main()
