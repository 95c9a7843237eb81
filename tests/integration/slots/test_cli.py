"""The ``slots`` command on real servers: what it prints, asks, refuses and returns."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from slots import catalog
from slots.connect import Target
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.slot_stage import Command, Stage

pytestmark = pytest.mark.postgres

LINE = re.compile(r"SLOTS (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+( \| [^|\n]+)?\n")
SLOTS = str(Path(sys.executable).with_name("slots"))
AWAY = Target(dsn=SecretStr("postgresql://u:s3cr3t@127.0.0.1:1/d"))


@pytest.fixture
async def stage(stage: Stage) -> Stage:
    """A stage with a slot that nobody reads, 6 MB behind."""
    await catalog.create_slot(stage.admin, "orders")
    await stage.write(6)
    return stage


async def test_list_shows_a_row_a_slot_and_what_is_wrong(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "standby", plugin=None)

    assert await slots(stage.target, "list", "--limit", "lag=1MB:2MB") == 0

    for shown in ("orders", "pgoutput", "postgres", "reserved", "standby", "physical"):
        assert shown in slots.out
    assert re.search(r"critical: orders: its consumer has not confirmed \d", slots.out)
    assert "slots why orders" in slots.out


async def test_list_shows_the_slots_that_are_named_only(
    stage: Stage, slots: Command
) -> None:
    await catalog.create_slot(stage.admin, "other")

    assert await slots(stage.target, "list", "other", "--sample", "0") == 0
    assert "orders" not in slots.out
    assert await slots(stage.target, "list", "nosuch", "--sample", "0") == 1
    assert slots.err == "slots: slot nosuch does not exist; there are: orders, other\n"


async def test_a_server_without_slots_says_so(stage: Stage, slots: Command) -> None:
    await catalog.drop_slot(stage.admin, "orders")

    assert await slots(stage.target, "list", "--sample", "0") == 0
    assert "there are no replication slots" in slots.out
    assert await slots(stage.target, "check") == 0
    assert slots.out == "SLOTS OK - there are no replication slots\n"


async def test_show_says_everything_and_the_verdict_in_words(
    stage: Stage, slots: Command
) -> None:
    assert await slots(stage.target, "show", "orders", "--limit", "lag=1MB:2MB") == 0

    for shown in ("wal_status", "restart_lsn", "transaction gap", "verdict: critical"):
        assert shown in slots.out


async def test_why_says_what_is_at_stake_and_what_to_do(
    stage: Stage, slots: Command
) -> None:
    assert await slots(stage.target, "why", "orders") == 0

    assert "left of max_slot_wal_keep_size" in slots.out
    assert "nobody streams from it" in slots.out
    assert "-> start its consumer" in slots.out


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("-w", "100MB", "-c", "1GB", "--limit", "inactive=off"), 0, "OK"),
        (("-w", "1MB", "-c", "1GB", "--limit", "inactive=off"), 1, "WARNING"),
        (("-w", "1MB", "-c", "2MB"), 2, "CRITICAL"),
        (("-w", "50%", "-c", "80%", "--limit", "inactive=off"), 0, "OK"),
        (("-w", "1%", "--limit", "inactive=off"), 1, "WARNING"),
        (("-c", "1%"), 2, "CRITICAL"),
        (("--limit", "lag=1MB", "--limit", "inactive=off"), 1, "WARNING"),
        (("-w", "much"), 3, "UNKNOWN"),
        (("-w", "2GB", "-c", "1GB"), 3, "UNKNOWN"),
        (("-w", "60%", "-c", "50%"), 3, "UNKNOWN"),
        (("-t", "soon"), 3, "UNKNOWN"),
        (("--limit", "lag"), 3, "UNKNOWN"),
        (("--limit", "lags=1GB"), 3, "UNKNOWN"),
        (("--standby", "host=x"), 3, "UNKNOWN"),
        (("--no-such-option",), 3, "UNKNOWN"),
    ],
)
async def test_check_is_one_line_and_the_plugin_exit_code(
    stage: Stage, slots: Command, arguments: tuple[str, ...], code: int, word: str
) -> None:
    assert await slots(stage.target, "check", "orders", *arguments) == code

    assert LINE.fullmatch(slots.out), slots.out
    assert slots.out.startswith(f"SLOTS {word} - ")


async def test_check_gives_numbers_with_their_limits(
    stage: Stage, slots: Command
) -> None:
    await slots(stage.target, "check", "orders", "-w", "1MB", "-c", "1GB")

    numbers = slots.out.partition("| ")[2]
    assert re.match(
        r"'orders_retained'=\d{7}B;1048576;1073741824;0; 'orders_lag'=\d{7}B;;;0;\n",
        numbers,
    )


async def test_check_is_unknown_when_it_cannot_measure(slots: Command) -> None:
    assert await slots(AWAY, "check") == 3

    assert slots.out.startswith("SLOTS UNKNOWN - 127.0.0.1:1/d as u: ")
    assert "s3cr3t" not in slots.out
    assert slots.err == ""


async def test_check_is_unknown_when_the_time_is_up(
    stage: Stage, slots: Command
) -> None:
    assert await slots(stage.target, "check", "-t", "0.001s") == 3
    assert "no answer within 0.001 s" in slots.out


@pytest.mark.parametrize("command", ["list", "show", "why", "drop", "advance", "copy"])
async def test_a_server_that_is_away_is_one_line_with_the_remedy(
    slots: Command, command: str
) -> None:
    names = {"list": [], "advance": ["a", "now"], "copy": ["a", "b"]}.get(
        command, ["a"]
    )
    yes = ["--yes"] if command in {"drop", "advance", "copy"} else []

    assert await slots(AWAY, command, *names, *yes) == 1

    last = slots.err.splitlines()[-1]
    assert last.startswith("slots: 127.0.0.1:1/d as u: Connection refused; check host")
    assert "s3cr3t" not in slots.err


async def test_without_a_yes_nothing_is_done(stage: Stage, slots: Command) -> None:
    for arguments in (
        ("create", "new"),
        ("drop", "orders"),
        ("advance", "orders", "now"),
        ("copy", "orders", "new"),
    ):
        assert await slots(stage.target, *arguments) == 2
        assert "not confirmed" in slots.err
        assert "--yes does it" in slots.err

    (one,) = await catalog.list_slots(stage.admin)
    assert one.name == "orders"


async def test_drop_refuses_a_slot_that_is_read_and_force_ends_its_reader(
    stage: Stage, slots: Command
) -> None:
    await stage.consumer("orders")

    assert await slots(stage.target, "drop", "orders", "--yes") == 1
    assert "in use by pid" in slots.err
    assert "application sleepy" in slots.err
    assert "--force" in slots.err

    assert await slots(stage.target, "drop", "orders", "--yes", "--force") == 0
    assert "its reader (pid" in slots.err
    assert await catalog.get_slot(stage.admin, "orders") is None


async def test_drop_says_what_can_be_lost(stage: Stage, slots: Command) -> None:
    assert await slots(stage.target, "drop", "orders", "--yes") == 0

    assert slots.err.startswith("Drop logical slot orders at 127.0.0.1:")
    assert slots.out == "slot orders dropped\n"
    assert await slots(stage.target, "drop", "orders", "--yes") == 1
    assert "does not exist" in slots.err


async def test_advance_says_what_is_given_up_and_never_goes_back(
    stage: Stage, slots: Command
) -> None:
    assert await slots(stage.target, "advance", "orders", "now") == 2
    assert re.search(r"\d\.\d+ MB of changes are given up", slots.err)

    assert await slots(stage.target, "advance", "orders", "now", "--yes") == 0
    position = (await stage.slot("orders")).confirmed_flush_lsn
    assert slots.out == f"slot orders is at {position}\n"
    assert await slots(stage.target, "advance", "orders", "0/1", "--yes") == 2
    assert "cannot go back" in slots.err
    assert await slots(stage.target, "advance", "orders", "soon", "--yes") == 2
    assert "not an LSN" in slots.err


async def test_advance_refuses_a_slot_that_is_read(
    stage: Stage, slots: Command
) -> None:
    await stage.consumer("orders")

    assert await slots(stage.target, "advance", "orders", "now", "--yes") == 1
    assert "in use by pid" in slots.err


async def test_copy_moves_to_another_plugin_at_the_same_position(
    stage: Stage, slots: Command
) -> None:
    arguments = ("copy", "orders", "new", "--plugin", "test_decoding", "--yes")

    assert await slots(stage.target, *arguments) == 0

    old, new = await stage.slot("orders"), await stage.slot("new")
    assert new.plugin == "test_decoding"
    assert new.confirmed_flush_lsn == old.confirmed_flush_lsn


async def test_create_lists_what_it_waits_for_and_gives_up_in_time(
    stage: Stage, slots: Command
) -> None:
    session = await stage.begin_write()

    code = await slots(stage.target, "create", "new", "--timeout", "2s", "--yes")

    assert code == 1
    assert f"waiting for pid {session.info.backend_pid} " in slots.err
    assert "slot new was not ready within 2 s" in slots.err
    assert await catalog.get_slot(stage.admin, "new") is None


async def test_create_makes_every_kind_of_slot(stage: Stage, slots: Command) -> None:
    assert await slots(stage.target, "create", "two", "--two-phase", "--yes") == 0
    assert (await stage.slot("two")).two_phase is True
    assert await slots(stage.target, "create", "phys", "--physical", "--yes") == 0
    assert (await stage.slot("phys")).restart_lsn is not None

    code = await slots(stage.target, "create", "ready", "--failover", "--yes")
    if stage.server.version == "18":
        assert code == 0
        assert (await stage.slot("ready")).failover is True
    else:
        assert code == 1
        assert "Postgres 17 and later" in slots.err


async def test_create_of_an_unknown_plugin_names_the_remedy(
    stage: Stage, slots: Command
) -> None:
    assert await slots(stage.target, "create", "x", "--plugin", "nosuch", "--yes") == 1
    assert slots.err.splitlines()[-1].startswith("slots: ")
    assert slots.err.count("\n") == 2


async def test_limits_come_from_variables_and_options_win(
    stage: Stage, slots: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTS_LAG", "1MB:2MB")
    monkeypatch.setenv("SLOTS_INACTIVE", "off")

    assert await slots(stage.target, "check") == 2
    assert await slots(stage.target, "check", "--limit", "lag=1GB") == 0


async def test_the_server_comes_from_the_relays_variable_or_libpqs(
    stage: Stage, slots: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_POSTGRES__DSN", stage.target.dsn.get_secret_value())
    assert await slots(None, "list", "--sample", "0") == 0
    assert "orders" in slots.out

    monkeypatch.delenv("CDC_POSTGRES__DSN")
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(stage.server.port))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("CDC_KAFKA__BOOTSTRAP_SERVERS", "never looked at")
    assert await slots(None, "list", "--sample", "0") == 0
    assert "orders" in slots.out


async def test_watch_once_prints_a_line_a_slot(stage: Stage, slots: Command) -> None:
    process = await asyncio.create_subprocess_exec(
        SLOTS,
        "watch",
        "--once",
        "--dsn",
        stage.target.dsn.get_secret_value(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert process.returncode == 0, err
    assert re.fullmatch(
        rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ orders ok reserved inactive"
        rb" retained=.* lag=.* gap=.* growth=-\n",
        out,
    )
    assert slots.out == ""


async def test_list_watch_goes_on_until_interrupted(stage: Stage) -> None:
    process = await asyncio.create_subprocess_exec(
        SLOTS,
        "list",
        "--watch",
        "--sample",
        "0.1s",
        "--dsn",
        stage.target.dsn.get_secret_value(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    async def looks() -> bool:
        cursor = await stage.admin.execute(
            "SELECT 1 FROM pg_catalog.pg_stat_activity"
            " WHERE application_name = 'walferry slots'"
        )
        return await cursor.fetchone() is not None

    await eventually(looks)
    process.send_signal(2)
    _, err = await process.communicate()

    assert process.returncode == 130
    assert b"Traceback" not in err
