"""A Postgres of one's own is there when it says so, and gone when it is closed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from cdc.errors import RequirementMissing
from cdc.local import LocalPostgres
from cdc.local.account import unprivileged
from cdc.local.ports import is_listening
from cdc.local.postgres_binaries import _from_wheel, _reachable
from cdc.local.processes import run
from tests.certificates import make_certificate
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.postgres


def ask(server: LocalPostgres, query: str, dsn: str = "") -> Any:
    with psycopg.connect(dsn or server.dsn(), autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchone()[0] if cursor.description else None  # type: ignore[index]


@pytest.mark.parametrize("major", ["15", "18"])
def test_nothing_is_left_of_a_closed_server(major: str) -> None:
    with LocalPostgres(major) as server:
        pid = int((server.data_dir / "postmaster.pid").read_text().split()[0])
        assert ask(server, "SHOW wal_level") == "logical"
        assert ask(server, "SHOW server_version_num").startswith(major)
        assert server.server_version.startswith(f"{major}.")
    assert not server.folder.exists()
    assert not is_listening(server.port)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with socket.create_server(("127.0.0.1", server.port)):
        pass  # the port can be had again


def test_it_can_be_reached_by_loopback_only(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    server = private_postgres("18")
    with pytest.raises(ConnectionRefusedError):
        # Listening on every address would answer here, too.
        socket.create_connection(("127.0.0.2", server.port), timeout=1)


@pytest.mark.parametrize("major", ["15", "18"])
def test_what_is_committed_outlives_every_way_of_stopping(
    private_postgres: Callable[..., LocalPostgres], major: str
) -> None:
    server = private_postgres(major)
    address = server.dsn()
    ask(server, "CREATE TABLE kept (n int)")
    for count, stop in enumerate(
        [
            lambda: server.stop("smart"),
            lambda: server.stop("fast"),
            lambda: server.stop("immediate"),
            server.kill,
        ]
    ):
        ask(server, "INSERT INTO kept VALUES (1)")
        stop()
        assert not is_listening(server.port)
        server.start()
        assert server.dsn() == address
        assert ask(server, "SELECT count(*) FROM kept") == count + 1


def test_a_killed_and_closed_server_leaves_no_shared_memory() -> None:
    before = Path("/proc/sysvipc/shm").read_text()
    with LocalPostgres("18") as server:
        line = (server.data_dir / "postmaster.pid").read_text().splitlines()[6]
        key = line.split()[0]
        assert key in Path("/proc/sysvipc/shm").read_text()
        server.kill()
    assert key not in before
    assert key not in Path("/proc/sysvipc/shm").read_text()


@pytest.mark.parametrize(
    ("major", "plugin"), [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
)
def test_the_output_plugins_of_the_relay_are_allowed(
    postgres_servers: Any, major: str, plugin: str
) -> None:
    server = postgres_servers[major]
    made = f"pg_create_logical_replication_slot('allowed_{plugin}', '{plugin}', true)"
    assert ask(server, f"SELECT ({made}).slot_name") == f"allowed_{plugin}"


@pytest.mark.matrix
@pytest.mark.parametrize("major", ["14", "16", "17"])
def test_the_further_versions_run(postgres_servers: Any, major: str) -> None:
    version = ask(postgres_servers[major], "SHOW server_version_num")
    assert int(version) // 10_000 == int(major)


def test_encoding_and_segment_size_are_as_asked(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    server = private_postgres("18", encoding="LATIN1", wal_segment_mb=1)
    assert ask(server, "SHOW server_encoding") == "LATIN1"
    assert ask(server, "SHOW wal_segment_size") == "1MB"


async def test_settings_can_be_changed_while_it_runs(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    server = private_postgres("15", settings={"wal_keep_size": "8MB"})
    assert ask(server, "SHOW wal_keep_size") == "8MB"

    server.set(output_plugin_libraries="pgoutput", wal_keep_size="16MB")
    server.reload()

    await eventually(lambda: ask(server, "SHOW wal_keep_size") == "16MB")
    assert ask(server, "SHOW output_plugin_libraries") == "pgoutput"


def test_a_setting_that_the_server_refuses_is_told_with_its_own_words() -> None:
    with (
        pytest.raises(RequirementMissing, match="unrecognized configuration parameter"),
        LocalPostgres("18", settings={"no_such_setting": "1"}),
    ):
        pass


def test_passwords_and_tls_are_asked_for_where_the_rules_say_so(
    private_postgres: Callable[..., LocalPostgres], tmp_path: Path
) -> None:
    server = private_postgres(
        "15",
        hba=[
            "hostssl all relay 127.0.0.1/32 scram-sha-256",
            "hostnossl all relay 127.0.0.1/32 reject",
        ],
    )
    ask(server, "CREATE ROLE relay LOGIN PASSWORD 'sesame'")
    certificate = make_certificate(tmp_path)
    server.set(
        ssl="on",
        ssl_cert_file=str(server.put("server.crt", certificate.chain)),
        ssl_key_file=str(server.put("server.key", certificate.key)),
    )
    server.restart()
    verified = f"?sslmode=verify-full&sslrootcert={certificate.ca_file}"
    relay = server.dsn(user="relay")

    assert ask(server, "SELECT current_user", f"{relay}{verified}&password=sesame")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        ask(server, "SELECT 1", f"{relay}{verified}&password=wrong")
    with pytest.raises(psycopg.OperationalError, match="rejects connection"):
        ask(server, "SELECT 1", f"{relay}?sslmode=disable&password=sesame")


async def test_a_standby_follows_and_can_be_promoted(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    primary = private_postgres("18")
    ask(primary, "SELECT pg_create_logical_replication_slot('ours', 'pgoutput')")
    with primary.standby() as standby:
        ask(primary, "CREATE TABLE t AS SELECT 1")
        await eventually(lambda: ask(standby, "SELECT to_regclass('t') IS NOT NULL"))
        assert ask(standby, "SELECT pg_is_in_recovery()")
        primary.kill()

        standby.promote()

        assert not ask(standby, "SELECT pg_is_in_recovery()")
        assert ask(standby, "SELECT count(*) FROM pg_replication_slots") == 0
    assert not standby.folder.exists()


def test_a_cold_copy_is_the_same_cluster_with_its_slots(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    server = private_postgres("15")
    ask(server, "SELECT pg_create_logical_replication_slot('ours', 'wal2json')")
    identifier = "SELECT system_identifier FROM pg_control_system()"
    original = ask(server, identifier)
    with pytest.raises(RuntimeError, match="stopped server"):
        server.cold_copy()
    server.stop()
    with server.cold_copy() as copy:
        assert ask(copy, identifier) == original
        assert ask(copy, "SELECT slot_name FROM pg_replication_slots") == "ours"


def test_a_slot_can_be_carried_to_a_stopped_standby(
    private_postgres: Callable[..., LocalPostgres],
) -> None:
    primary = private_postgres("15")
    ask(primary, "SELECT pg_create_logical_replication_slot('ours', 'pgoutput')")
    slots = "SELECT slot_name || ' ' || confirmed_flush_lsn FROM pg_replication_slots"
    made = ask(primary, slots)
    with primary.standby() as standby:
        with pytest.raises(RuntimeError, match="running server"):
            standby.take_slot(primary, "ours")
        standby.stop()
        standby.take_slot(primary, "ours")
        standby.start()
        assert ask(standby, slots) == made


def test_programs_that_the_servers_account_cannot_reach_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A virtual environment below /root is closed to the account of root's servers."""
    account = unprivileged()
    with (
        tempfile.TemporaryDirectory() as closed,
        tempfile.TemporaryDirectory() as cache,
    ):
        Path(cache).chmod(0o755)
        monkeypatch.setenv("WALFERRY_CACHE", cache)
        package = _from_wheel().parent
        shutil.copytree(package, Path(closed) / package.name, symlinks=True)

        programs = _reachable(Path(closed) / package.name / "pginstall", "18", account)

        printed = run([str(programs / "pg_ctl"), "--version"], account=account)
        assert printed.startswith("pg_ctl (PostgreSQL) 18")
        is_copied = programs.is_relative_to(cache)
        assert is_copied == (account.uid is not None)


def test_what_steers_libpq_elsewhere_is_kept_from_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGOPTIONS", "-c no_such_setting=1")
    with LocalPostgres("18") as server:
        monkeypatch.delenv("PGOPTIONS")
        assert ask(server, "SHOW port") == str(server.port)
