"""Connections to real servers: pinned, kept alive, refused with a reason."""

from __future__ import annotations

import asyncio
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from pydantic import SecretStr

from cdc.local import LocalPostgres
from slots import errors
from slots.connect import PINS, Target, connect, password, translated
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.postgres

PASSWORD = "s3cr3t-Ä/@:%"  # noqa: S105 - a test's
HOSTILE = {
    "client_min_messages": "error",
    "statement_timeout": "1",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "1",
    "bytea_output": "escape",
    "row_security": "on",
    "search_path": "hostile",
    "TimeZone": "Asia/Tokyo",
    "DateStyle": "German",
    "extra_float_digits": "0",
}


@pytest.fixture(scope="module", params=["15", "18"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    """A server on which some roles need a password and one is turned away."""
    rules = [
        f"host all {role} 127.0.0.1/32 {method}"
        for role, method in (("scram", "scram-sha-256"), ("unwanted", "reject"))
    ]
    with LocalPostgres(request.param, hba=rules) as running:
        with psycopg.connect(running.dsn(), autocommit=True) as admin:
            for statement in (
                f"CREATE ROLE scram LOGIN PASSWORD '{PASSWORD}'",
                "CREATE ROLE unwanted LOGIN",
                "CREATE ROLE plain LOGIN",
                "CREATE ROLE hostile LOGIN REPLICATION",
                *(
                    f"ALTER ROLE hostile SET {name} = '{value}'"
                    for name, value in HOSTILE.items()
                ),
            ):
                admin.execute(statement.encode())
        yield running


def target(dsn: str, **options: Any) -> Target:
    return Target(dsn=SecretStr(dsn), **options)


async def settings_of(wanted: Target, *, replication: bool) -> dict[str, str]:
    async with await connect(wanted, replication=replication) as connection:
        return {
            name: (
                await (await connection.execute(f"SHOW {name}".encode())).fetchall()
            )[0][0]
            for name in (*PINS, "client_encoding", "application_name")
        }


@pytest.mark.parametrize("replication", [False, True])
async def test_hostile_role_defaults_change_nothing(
    server: LocalPostgres, *, replication: bool
) -> None:
    found = await settings_of(
        target(server.dsn(user="hostile")), replication=replication
    )

    assert found == {
        **PINS,
        "DateStyle": found["DateStyle"],
        "client_encoding": "UTF8",
        "application_name": "walferry",
    }
    assert found["DateStyle"].startswith("ISO")


async def test_what_the_dsn_asks_for_stays_unless_it_is_pinned(
    server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = quote("-c work_mem=7MB -c statement_timeout=5")
    dsn = f"{server.dsn()}?options={given}&application_name=mine"

    async with await connect(target(dsn)) as connection:
        cursor = await connection.execute(
            "SELECT current_setting('work_mem'), current_setting('statement_timeout'),"
            " current_setting('application_name')"
        )
        assert await cursor.fetchone() == ("7MB", "0", "mine")

    monkeypatch.setenv("PGOPTIONS", "-c work_mem=9MB")
    async with await connect(target(server.dsn())) as connection:
        assert await (await connection.execute("SHOW work_mem")).fetchone() == ("9MB",)


async def test_transaction_timeout_is_off_where_it_exists(
    server: LocalPostgres,
) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        if admin.info.server_version < 170000:
            return
        admin.execute("ALTER ROLE hostile SET transaction_timeout = '9s'")

    for replication in (False, True):
        async with await connect(
            target(server.dsn(user="hostile")), replication=replication
        ) as connection:
            shown = await (
                await connection.execute("SHOW transaction_timeout")
            ).fetchall()
            assert shown == [("0",)]


async def test_replication_makes_a_walsender(server: LocalPostgres) -> None:
    async with await connect(target(server.dsn()), replication=True) as connection:
        rows = await (await connection.execute("IDENTIFY_SYSTEM")).fetchall()

    assert rows[0][3] == "postgres"


async def test_a_walsender_is_asked_the_same_thing_any_number_of_times(
    server: LocalPostgres,
) -> None:
    """It knows no prepared statements, and what holds a lock on it asks for long."""
    async with await connect(target(server.dsn()), replication=True) as connection:
        for _ in range(12):
            cursor = await connection.execute("SELECT 1")
            assert await cursor.fetchall() == [(1,)]


async def test_keepalive_is_set_on_the_socket(server: LocalPostgres) -> None:
    async with await connect(target(server.dsn())) as connection:
        line = socket.socket(fileno=connection.fileno())
        try:
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60000
        finally:
            line.detach()


async def test_g01_a_password_by_uri_and_by_pairs_gets_in(
    server: LocalPostgres,
) -> None:
    uri = server.dsn(user="scram").replace("scram@", f"scram:{quote(PASSWORD, '')}@")
    pairs = f"host=127.0.0.1 port={server.port} user=scram dbname=postgres"

    for dsn in (uri, f"{pairs} password='{PASSWORD}'"):
        async with await connect(target(dsn)) as connection:
            assert connection.info.user == "scram"


async def test_a_password_file_is_read_at_every_connect(
    server: LocalPostgres, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    wanted = target(server.dsn(user="scram"), password_file=file)

    file.write_text("old\n", encoding="utf-8")
    with pytest.raises(errors.AuthenticationRefused):
        await connect(wanted)
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    await (await connect(wanted)).close()
    file.unlink()
    with pytest.raises(errors.BadConnectionSettings, match="No such file"):
        await connect(wanted)


async def test_a_password_command_is_run_at_every_connect(
    server: LocalPostgres, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    wanted = target(server.dsn(user="scram"), password_command=f"cat '{file}'")

    with pytest.raises(errors.BadConnectionSettings, match="exit code 1"):
        await connect(wanted)
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    await (await connect(wanted)).close()
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(errors.BadConnectionSettings, match="empty"):
        await connect(wanted)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/no/such/program s3cr3t", "No such file"),
        ("'s3cr3t", "badly quoted"),
        ("", "empty"),
        ("printf '\\377'", "not UTF-8"),
        ("printf 'a\\0b'", "NUL"),
    ],
)
async def test_a_password_command_that_fails_says_why_without_its_words(
    server: LocalPostgres, command: str, reason: str
) -> None:
    with pytest.raises(errors.BadConnectionSettings, match=reason) as caught:
        await connect(target(server.dsn(), password_command=command))

    assert "s3cr3t" not in str(caught.value)


async def test_a_password_command_that_hangs_is_ended_with_its_children(
    server: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password, "COMMAND_LIMIT_S", 0.2)
    mark = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {mark}; wait"

    with pytest.raises(errors.BadConnectionSettings, match="took over"):
        await connect(target(server.dsn(), password_command=f'sh -c "{script}"'))

    child = int(mark.read_text("utf-8"))
    await eventually(lambda: not _is_running(child), what="the child is gone")


def _is_running(pid: int) -> bool:
    try:
        state = (
            Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


REFUSALS = {
    "wrong password": ("scram", "postgres", "?password={wrong}", "Authentication"),
    "no password": ("scram", "postgres", "", "Authentication"),
    "turned away": ("unwanted", "postgres", "?password={wrong}", "Authentication"),
    "no such role": ("nobody", "postgres", "?password={wrong}", "Authentication"),
    "no such database": ("plain", "nowhere", "?password={wrong}", "DatabaseMissing"),
    "no TLS": (
        "plain",
        "postgres",
        "?sslmode=require&password={wrong}",
        "BadConnectionSettings",
    ),
    "no such service": (
        "plain",
        "postgres",
        "?service=none&password={wrong}",
        "BadConnectionSettings",
    ),
    "bad option": (
        "plain",
        "postgres",
        "?options=-c%20wal_level%3Dnone&password={wrong}",
        "BadConnectionSettings",
    ),
    "standby wanted": (
        "plain",
        "postgres",
        "?target_session_attrs=standby&password={wrong}",
        "ServerUnavailable",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_g01_a_refusal_names_target_and_reason_and_no_secret(
    server: LocalPostgres, case: str
) -> None:
    user, database, rest, expected = REFUSALS[case]
    wrong = quote("x" + PASSWORD, safe="")
    dsn = server.dsn(database, user) + rest.replace("{wrong}", wrong)

    with pytest.raises(errors.SlotError) as caught:
        await connect(target(dsn), timeout_s=5)

    assert type(caught.value).__name__.startswith(expected)
    assert f"127.0.0.1:{server.port}/{database} as {user}: " in str(caught.value)
    assert caught.value.hint
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "\n" not in str(caught.value)
    for form in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD)):
        assert form not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_role_that_may_not_replicate_is_told_the_statement(
    server: LocalPostgres,
) -> None:
    with pytest.raises(errors.PermissionDenied) as caught:
        await connect(target(server.dsn(user="plain")), replication=True)

    assert "ALTER ROLE" in caught.value.hint
    assert "rds_replication" in caught.value.hint


async def test_nobody_there_is_worth_a_retry() -> None:
    with pytest.raises(errors.ServerUnavailable) as caught:
        await connect(target("postgresql://u@127.0.0.1:1/d"), timeout_s=2)

    assert caught.value.retryable


async def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with asyncio.timeout(20):
            with pytest.raises(errors.ServerUnavailable):
                await connect(target(f"postgresql://u@127.0.0.1:{port}/d"), timeout_s=2)


async def test_the_first_host_that_will_have_us_is_taken(
    server: LocalPostgres,
) -> None:
    dsn = f"postgresql://postgres@127.0.0.1:1,127.0.0.1:{server.port}/postgres"

    async with await connect(target(dsn)) as connection:
        assert connection.info.port == server.port


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT pg_catalog.pg_terminate_backend(pid)", errors.ServerUnavailable),
        ("SELECT pg_catalog.pg_drop_replication_slot('none')", errors.SlotMissing),
        ("SELECT 1/0", errors.ServerRefused),
        ("CREATE ROLE x", errors.PermissionDenied),
    ],
)
async def test_errors_of_a_statement_become_ours(
    server: LocalPostgres, statement: str, expected: type[errors.SlotError]
) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("ALTER ROLE plain REPLICATION")
    async with await connect(target(server.dsn(user="plain"))) as connection:
        own = statement.replace("(pid)", f"({connection.info.backend_pid})")
        with pytest.raises(expected) as caught, translated():
            await connection.execute(own.encode())
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("ALTER ROLE plain NOREPLICATION")

    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.sqlstate


async def test_a_lost_line_is_worth_a_retry(
    server: LocalPostgres, proxy: Callable[..., Any]
) -> None:
    between = await proxy("127.0.0.1", server.port)
    dsn = f"postgresql://postgres@127.0.0.1:{between.port}/postgres"
    connection = await connect(target(dsn))

    await between.cut()

    with pytest.raises(errors.ServerUnavailable, match="connection lost"), translated():
        await connection.execute("SELECT 1")
    await connection.close()
    assert sys.exc_info()[0] is None
