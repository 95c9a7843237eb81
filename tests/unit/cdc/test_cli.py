"""The ``cdc`` command: what it prints, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.main import get_command

from cdc.cli import app

NOBODY = "postgresql://app:s3cr3t-x@127.0.0.1:1/shop"

SINK = """
class Sink:
    troubles = ()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    async def publish(self, batch):
        raise NotImplementedError

    async def check(self, topics):
        credential = "s3cr3t-local"
        raise LookupError("s3cr3t-" + "text")


def broken():
    raise OSError("two\\nlines")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands run."""
    (tmp_path / "own.py").write_text(SINK)
    return tmp_path


def cdc(
    folder: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [Path(sys.executable).with_name("cdc"), *arguments],
        cwd=folder,
        env=kept | settings,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_the_help_of_every_command_has_an_example(folder: Path, name: str) -> None:
    done = cdc(folder, name, "--help")

    assert done.returncode == 0
    assert "Example: " in done.stdout
    assert f"cdc {name}" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    """Or it would not be there at once."""
    code = "import sys, cdc.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {"aiokafka", "asyncio", "prometheus_client", "psycopg", "pydantic", "rich"}
    assert not loaded & heavy


def test_the_version_is_that_of_the_distribution(folder: Path) -> None:
    assert cdc(folder, "--version").stdout == f"walferry {version('walferry')}\n"


def test_a_command_that_does_not_exist_is_a_usage_error(folder: Path) -> None:
    done = cdc(folder, "resync")

    assert done.returncode == 2
    assert "resync" in done.stderr


@pytest.mark.parametrize("command", ["init", "check", "run", "config"])
def test_wrong_settings_are_a_line_each_and_exit_2(folder: Path, command: str) -> None:
    done = cdc(folder, command, CDC_GRACE_S="x", CDC_SLOT__PLUGIN="y")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "cdc: CDC_SLOT__PLUGIN: must be pgoutput or wal2json",
        "cdc: CDC_GRACE_S: must be a number",
    ]


def test_what_config_prints_may_stand_in_env(folder: Path) -> None:
    headers = '{"b":"{type}","a":"constant"}'
    given = {
        "CDC_RECORD__HEADERS": headers,
        "CDC_OUTBOX__COLUMNS__KEY": "",
        "CDC_KAFKA__CREATE_TOPICS": "1",
        "CDC_HTTP__LISTEN": ":8080",
        "CDC_ALARMS__LAG": "2GB",
    }
    first = cdc(folder, "config", **given)
    (folder / ".env").write_text(first.stdout)

    assert first.returncode == 0
    assert "CDC_KAFKA__CREATE_TOPICS=true" in first.stdout.splitlines()
    assert f"CDC_RECORD__HEADERS={headers}" in first.stdout.splitlines()
    assert cdc(folder, "config").stdout == first.stdout


def test_config_for_machines_says_the_same_without_secrets(folder: Path) -> None:
    given = {"CDC_POSTGRES__DSN": NOBODY, "CDC_KAFKA__SASL__PASSWORD": "s3cr3t-y"}
    lines = cdc(folder, "config", **given).stdout
    document = json.loads(cdc(folder, "config", "--json", **given).stdout)

    assert [line.partition("=")[0] for line in lines.splitlines()] == list(document)
    assert "s3cr3t" not in lines + str(document)
    assert "host=127.0.0.1" in document["CDC_POSTGRES__DSN"]
    assert document["CDC_KAFKA__SASL__PASSWORD"] == "***"  # noqa: S105 - the mask
    assert document["CDC_STATUS_INTERVAL_S"] == 10


def test_init_print_shows_the_sql_and_asks_no_server(folder: Path) -> None:
    done = cdc(
        folder,
        "init",
        "--print",
        CDC_POSTGRES__DSN=NOBODY,
        CDC_OUTBOX__TABLES='app."Out,box"',
        CDC_SLOT__PUBLICATION="orders",
    )

    assert done.returncode == 0
    assert done.stderr == ""
    create, publication, slot = done.stdout.split(";\n")[:3]
    assert 'CREATE TABLE IF NOT EXISTS "app"."Out,box"' in create
    assert publication.startswith('CREATE PUBLICATION "orders"')
    assert "'walferry', 'pgoutput'" in slot


def test_check_says_it_on_stdout_alone_when_nobody_is_there(folder: Path) -> None:
    given = {
        "CDC_POSTGRES__DSN": NOBODY,
        "CDC_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }

    done = cdc(folder, "check", "--json", **given)

    assert done.returncode == 3
    assert done.stderr == ""
    assert {
        finding["name"]: finding["status"] for finding in json.loads(done.stdout)
    } == {
        "postgres.connection": "failure",
        "kafka.broker": "failure",
    }
    lines = cdc(folder, "check", **given).stdout.splitlines()
    assert len(lines) == 2
    assert all(" -> " in line for line in lines)


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("nowhere:sink", "No module named 'nowhere'"),
        ("own:nothing", "nothing"),
        ("own:broken", "OSError: two lines"),
        ("builtins:dict", "it has no __aenter__"),
    ],
)
def test_a_sink_of_the_users_own_that_is_none_is_one_line(
    folder: Path, sink: str, words: str
) -> None:
    done = cdc(folder, "run", CDC_POSTGRES__DSN=NOBODY, CDC_SINK=sink)

    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("cdc: CDC_SINK: ")
    assert words in line
    assert "module:factory" in line


def test_a_mistake_of_ours_is_one_line_that_quotes_nothing(folder: Path) -> None:
    done = cdc(folder, "check", CDC_POSTGRES__DSN=NOBODY, CDC_SINK="own:Sink")

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("cdc: LookupError at ")
    assert "--debug" in line
    assert "s3cr3t" not in line


def test_debug_shows_the_traceback_and_no_local_variables(folder: Path) -> None:
    done = cdc(
        folder, "--debug", "check", CDC_POSTGRES__DSN=NOBODY, CDC_SINK="own:Sink"
    )

    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "LookupError" in done.stderr
    assert "s3cr3t-x" not in done.stderr
