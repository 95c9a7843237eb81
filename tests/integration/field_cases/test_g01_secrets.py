"""Field case G01: secrets never leave the process."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.relay_process import RelayProcess, cdc, environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

SECRET = "s3cr3t-Ä/@:%"  # noqa: S105 - the case's own
FORMS = {
    SECRET,
    quote(SECRET),
    quote(SECRET, safe=""),
    SECRET.replace("'", "\\'"),
    json.dumps(SECRET)[1:-1],
    repr(SECRET.encode())[2:-1],
    "s3cr3t",
}


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        for form in FORMS:
            assert form not in text, f"{form!r} in: {text[:2000]}"


@pytest.fixture
async def guarded(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> Source:
    """A server that wants a password of the role ``app``."""
    server = private_postgres("18", hba=["host all app 127.0.0.1/32 scram-sha-256"])
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    await source.execute("CREATE ROLE app LOGIN REPLICATION PASSWORD '" + SECRET + "'")
    return source


def dsn_parts(source: Source) -> dict[str, str]:
    parts = conninfo_to_dict(source.dsn)
    return {name: str(parts[name]) for name in ("host", "port", "dbname")}


def ways_in(source: Source, folder: Path, secret: str) -> dict[str, dict[str, str]]:
    """Give the settings for every way in which a password can be handed over."""
    where = dsn_parts(source)
    file = folder / "password"
    file.write_text(secret + "\n")
    plain = "postgresql://app@{host}:{port}/{dbname}".format(**where)
    uri = plain.replace("app@", f"app:{quote(secret, safe='')}@")
    pairs = " ".join(f"{name}={value}" for name, value in where.items())
    return {
        "uri": {"CDC_POSTGRES__DSN": uri},
        "pairs": {"CDC_POSTGRES__DSN": f"{pairs} user=app password='{secret}'"},
        "PGPASSWORD": {"CDC_POSTGRES__DSN": plain, "PGPASSWORD": secret},
        "file": {
            "CDC_POSTGRES__DSN": plain,
            "CDC_POSTGRES__PASSWORD_FILE": str(file),
        },
        "command": {
            "CDC_POSTGRES__DSN": plain,
            "CDC_POSTGRES__PASSWORD_COMMAND": f"cat {shlex.quote(str(file))}",
        },
    }


def process_title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


WAYS = ("uri", "pairs", "PGPASSWORD", "file", "command")


@pytest.mark.parametrize("way", WAYS)
async def test_g01_a_password_opens_the_door_and_is_seen_nowhere(
    guarded: Source, tmp_path: Path, way: str
) -> None:
    settings = (
        environment(guarded, CDC_SINK="jsonl") | ways_in(guarded, tmp_path, SECRET)[way]
    )

    async with RelayProcess(settings | {"CDC_LOG__LEVEL": "debug"}) as relay:
        await relay.streaming()
        status = json.dumps(await relay.status())
        _code, metrics = await relay.get("/metrics")
        title = process_title(relay.pid)
        rows = await guarded.fetch(
            "SELECT application_name, query FROM pg_stat_activity"
        )
        assert await relay.stop() == 0
    code, out, err = await cdc("config", settings=settings)
    assert code == 0
    assert "host" in out
    _, checked, _ = await cdc("check", "--json", settings=settings)

    assert_no_secret(relay.stderr, status, metrics, title, str(rows), out, err, checked)


WRONG: dict[str, dict[str, str]] = {
    "host": {"host": "nowhere.invalid"},
    "port": {"port": "1"},
    "password": {"password": SECRET + "x"},
    "TLS": {"sslmode": "require"},
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
async def test_g01_a_failure_names_the_target_and_no_secret(
    guarded: Source,
    what: str,
    debug: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    parts = dsn_parts(guarded) | {"user": "app", "password": SECRET} | WRONG[what]
    dsn = " ".join(f"{name}='{value}'" for name, value in parts.items())
    settings = environment(
        guarded, CDC_SINK="jsonl", CDC_POSTGRES__DSN=dsn, CDC_STARTUP_TIMEOUT_S="0"
    )
    flags = ["--debug"] if debug else []

    code, out, err = await cdc(*flags, "run", settings=settings)
    _, checked, check_err = await cdc(*flags, "check", settings=settings)
    _, _, init_err = await cdc(*flags, "init", "--yes", settings=settings)

    # A mode that the server cannot serve is a matter of settings.
    assert code == (2 if what == "TLS" else 3)
    assert parts["host"] in err
    assert_no_secret(out, err, checked, check_err, init_err)


async def test_g01_secrets_of_the_broker_stay_inside(
    guarded: Source, kafka: Any
) -> None:
    settings = environment(
        guarded,
        CDC_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        CDC_KAFKA__SECURITY_PROTOCOL="SASL_PLAINTEXT",
        CDC_KAFKA__SASL__MECHANISM="SCRAM-SHA-256",
        CDC_KAFKA__SASL__USERNAME="app",
        CDC_KAFKA__SASL__PASSWORD=SECRET,
        CDC_STARTUP_TIMEOUT_S="0",
    )

    outputs = [
        await cdc(*flags, command, settings=settings)
        for command in ("run", "check", "config")
        for flags in ((), ("--debug",))
    ]

    assert outputs[0][0] == 3
    assert_no_secret(*(text for _, out, err in outputs for text in (out, err)))


async def test_g01_a_password_that_rotates_is_read_anew(
    guarded: Source, tmp_path: Path
) -> None:
    way = ways_in(guarded, tmp_path, SECRET)["file"]
    settings = environment(guarded, CDC_SINK="jsonl", CDC_BACKOFF__MAX_S="0.5") | way

    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await guarded.execute("ALTER ROLE app PASSWORD 'another-one'")
        await guarded.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'app'"
        )
        await relay.logged(event="retrying", kind="AuthenticationRefused")
        assert (await relay.get("/readyz"))[0] == 503
        (tmp_path / "password").write_text("another-one")
        await relay.streaming()
        assert await relay.stop() == 0
    assert_no_secret(relay.stderr)
    assert "another-one" not in relay.stderr
