"""G01: a password is in no output, whatever goes wrong, and however it was given."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import psycopg
import pytest

from cdc.local import LocalPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.postgres

PASSWORD = "s3cr3t-Ä/@:%"  # noqa: S105 - a test's
FORMS = (
    PASSWORD,
    quote(PASSWORD, safe=""),
    quote(PASSWORD),
    quote_plus(PASSWORD),
    repr(PASSWORD)[1:-1],
    "s3cr3t",
)
COMMANDS = (
    ("list", "--sample", "0"),
    ("list", "--json", "--sample", "0"),
    ("show", "nosuch", "--sample", "0"),
    ("check",),
    ("watch", "--once"),
    ("drop", "nosuch", "--yes"),
    ("--debug", "show", "nosuch", "--sample", "0"),
)
BRIEFLY = (COMMANDS[0], COMMANDS[-1])


@pytest.fixture(scope="module")
def server() -> Iterator[LocalPostgres]:
    rule = "host all scram 127.0.0.1/32 scram-sha-256"
    with LocalPostgres("18", hba=[rule]) as running:
        with psycopg.connect(running.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE ROLE scram LOGIN PASSWORD '{PASSWORD}'".encode())
        yield running


def ways(server: LocalPostgres, folder: Path) -> dict[str, dict[str, str]]:
    """Return the variables of each way to give the password."""
    place = f"127.0.0.1:{server.port}/postgres"
    pairs = f"host=127.0.0.1 port={server.port} user=scram dbname=postgres"
    file = folder / "password"
    file.write_text(PASSWORD + "\n", encoding="utf-8")
    dsn, encoded = "CDC_POSTGRES__DSN", quote(PASSWORD, safe="")
    return {
        "uri": {dsn: f"postgresql://scram:{encoded}@{place}"},
        "pairs": {dsn: f"{pairs} password='{PASSWORD}'"},
        "variable": {dsn: pairs, "PGPASSWORD": PASSWORD},
        "file": {dsn: pairs, "CDC_POSTGRES__PASSWORD_FILE": str(file)},
        "command": {dsn: pairs, "CDC_POSTGRES__PASSWORD_COMMAND": f"cat {file}"},
        "not encoded": {dsn: f"postgresql://scram:{PASSWORD}@{place}"},
        "wrong port": {dsn: f"postgresql://scram:{encoded}@127.0.0.1:1/postgres"},
        "no port": {dsn: f"postgresql://scram:{encoded}@127.0.0.1:x/postgres"},
        "no host": {dsn: f"postgresql://scram:{encoded}@nohost.invalid/postgres"},
        "wrong role": {dsn: f"postgresql://scramx:{encoded}@{place}"},
        "wrong password": {dsn: f"postgresql://scram:{encoded}x@{place}"},
        "no database": {dsn: f"postgresql://scram:{encoded}@{place}x"},
        "no TLS": {dsn: f"postgresql://scram:{encoded}@{place}?sslmode=require"},
    }


WAYS = (
    "uri",
    "pairs",
    "variable",
    "file",
    "command",
    "not encoded",
    "wrong port",
    "no port",
    "no host",
    "wrong role",
    "wrong password",
    "no database",
    "no TLS",
)
GETS_IN = WAYS[:5]


@pytest.mark.parametrize("way", WAYS)
async def test_g01_no_output_holds_the_password(
    server: LocalPostgres, tmp_path: Path, way: str
) -> None:
    variables = await asyncio.to_thread(ways, server, tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    program = str(Path(sys.executable).with_name("slots"))
    shown = ""
    for command in COMMANDS if way == GETS_IN[0] else BRIEFLY:
        process = await asyncio.create_subprocess_exec(
            program,
            *command,
            env=environment | variables[way],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        shown += out.decode() + err.decode()
        if command[0] != "--debug":
            assert "Traceback" not in shown
        if command[0] == "list":
            assert (process.returncode == 0) is (way in GETS_IN), shown
    for form in FORMS:
        assert form not in shown
    if way not in {*GETS_IN, "not encoded", "no port"}:
        target = ("127.0.0.1:", "nohost.invalid:")
        assert any(one in shown for one in target)
