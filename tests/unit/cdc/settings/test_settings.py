"""Settings: where they come from, and what is said of a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.errors import SettingsError
from cdc.settings import column_names, load_settings
from cdc.settings.masked import MASK, effective
from cdc.settings.models import Settings
from cdc.settings.names import all_names, unknown_names
from slots.state import Limits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and an environment in which nothing is set."""
    monkeypatch.chdir(tmp_path)
    for name in all_names(Settings):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def problems(monkeypatch: pytest.MonkeyPatch, **settings: str) -> list[str]:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        load_settings()
    return str(raised.value).splitlines()


def test_the_defaults_are_those_of_the_documentation() -> None:
    shown = effective(load_settings())

    assert shown["CDC_NAME"] == "{database}.{slot}"
    assert shown["CDC_SLOT__NAME"] == "walferry"
    assert shown["CDC_SLOT__PLUGIN"] == "pgoutput"
    assert shown["CDC_OUTBOX__TABLES"] == "public.outbox"
    assert shown["CDC_OUTBOX__TOPIC"] == "outbox.event.{aggregatetype}"
    assert shown["CDC_KAFKA__DELIVERY"] == "at_least_once"
    assert shown["CDC_KAFKA__CREATE_TOPICS"] is False
    assert shown["CDC_JSONL__PATH"] == "-"
    assert shown["CDC_STARTUP_TIMEOUT_S"] == 60
    assert shown["CDC_SLOT__WAIT_S"] == 0
    assert shown["CDC_HTTP__LISTEN"] is None


def test_environment_over_env_file_over_toml_over_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cdc.toml").write_text(
        'grace_s = 1\nstatus_interval_s = 1\n[slot]\nname = "toml"\n'
        'publication = "toml"\n[record.headers]\nz = "1"\na = "{type}"\n'
    )
    (folder / ".env").write_text(
        "CDC_SLOT__NAME=dotenv\nCDC_GRACE_S=2\nOTHER=ignored\n"
    )
    monkeypatch.setenv("CDC_GRACE_S", "3")

    settings = load_settings()

    assert settings.grace_s == 3
    assert settings.slot.name == "dotenv"
    assert settings.slot.publication == "toml"
    assert settings.status_interval_s == 1
    assert settings.startup_timeout_s == 60
    assert list(settings.record.headers) == ["z", "a"]


def test_headers_in_the_environment_are_a_json_object_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CDC_RECORD__HEADERS", '{"b": "{type}", "a": "constant"}')

    assert list(load_settings().record.headers.items()) == [
        ("b", "{type}"),
        ("a", "constant"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CDC_SLOT__NAME", "Not Legal", "1 to 63 of a-z"),
        ("CDC_SLOT__PLUGIN", "decoderbufs", "must be pgoutput or wal2json"),
        ("CDC_SLOT__WAIT_S", "-1", "must be at least 0"),
        ("CDC_OUTBOX__TABLES", "outbox", "write schema.table"),
        ("CDC_OUTBOX__TOPIC", "bad topic", "no legal topic"),
        ("CDC_OUTBOX__TOPIC", "a.{", "template"),
        ("CDC_OUTBOX__COLUMNS__ID", "", "must not be empty"),
        ("CDC_OUTBOX__COLUMNS__KEY", "a,,b", "between two commas"),
        ("CDC_RECORD__HEADERS", "{a", "must be a JSON object"),
        ("CDC_RECORD__HEADERS", '{"a": 1}', "header 'a' must be a text"),
        ("CDC_RECORD__HEADERS", '{"id": "x"}', "walferry's own"),
        ("CDC_RECORD__HEADERS", '{"cdc.x": "x"}', "walferry's own"),
        ("CDC_SINK", "rabbit", "must be kafka, jsonl or module:factory"),
        ("CDC_KAFKA__DELIVERY", "exactly_once", "must be at_least_once"),
        ("CDC_KAFKA__COMPRESSION", "gz", "must be none, gzip, lz4"),
        ("CDC_KAFKA__CREATE_TOPICS", "perhaps", "must be true or false"),
        ("CDC_KAFKA__TOPIC_PARTITIONS", "0", "must be more than 0"),
        ("CDC_WINDOW__BYTES", "10", "must be at least 1048576"),
        ("CDC_STATUS_INTERVAL_S", "often", "must be a number"),
        ("CDC_HTTP__LISTEN", "8080", "host:port"),
        ("CDC_HTTP__LISTEN", "x:99999", "host:port"),
        ("CDC_LOG__LEVEL", "loud", "must be debug, info"),
        ("CDC_ALARMS__LAG", "much", "size"),
        ("CDC_NAME", "", "must be a text"),
        ("CDC_NAME", "{databse}", "{database} and {slot}"),
        ("CDC_OUTBOX__COLUMNS__KEY", '"a', "quoted where needed"),
        ("CDC_RECORD__HEADERS", "[1]", "must be a JSON object"),
        ("CDC_GRACE_S", "inf", "must be a finite number"),
        ("CDC_STATUS_INTERVAL_S", "nan", "must be a finite number"),
        ("CDC_WINDOW__BYTES", "32MB", "must be a whole number"),
        ("CDC_JSONL__PATH", "", "must not be empty"),
        ("CDC_ALARMS__NO_WAL_LIMIT", "no", "must be on or off"),
    ],
)
def test_a_wrong_value_is_one_line_with_the_name_and_what_it_may_be(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    (line,) = problems(monkeypatch, **{name: value})

    assert line.startswith(f"{name}: ")
    assert words in line


def test_several_wrong_values_are_several_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = problems(
        monkeypatch, CDC_GRACE_S="x", CDC_SLOT__PLUGIN="x", CDC_LOG__FORMAT="x"
    )

    assert [line.partition(":")[0] for line in sorted(lines)] == [
        "CDC_GRACE_S",
        "CDC_LOG__FORMAT",
        "CDC_SLOT__PLUGIN",
    ]


def test_a_secret_is_never_part_of_a_complaint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cdc.toml").write_text("[kafka.sasl]\npassword = ['s3cr3t-x']\n")

    lines = problems(monkeypatch, CDC_POSTGRES__DSNN="s3cr3t-y", CDC_GRACE_S="s3cr3t-z")

    assert "s3cr3t" not in "\n".join(lines)
    monkeypatch.delenv("CDC_POSTGRES__DSNN")
    assert "s3cr3t" not in "\n".join(problems(monkeypatch))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("CDC_KAFKA__BOOTSTRAP_SERVER", "CDC_KAFKA__BOOTSTRAP_SERVERS"),
        ("CDC_KAFKA_BOOTSTRAP_SERVERS", "CDC_KAFKA__BOOTSTRAP_SERVERS"),
        ("CDC_POSTGRES__DNS", "CDC_POSTGRES__DSN"),
        ("cdc_slot__nam", "CDC_SLOT__NAME"),
        ("CDC_HTTP__PORT", "CDC_HTTP__LISTEN"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    (line,) = problems(monkeypatch, **{name: "x"})

    assert line == f"{name} (environment): no such setting; did you mean {nearest}?"


def test_unknown_names_in_files_are_errors_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".env").write_text("CDC_SLOT__NAMES=x\n")
    assert problems(monkeypatch) == [
        "CDC_SLOT__NAMES (.env): no such setting; did you mean CDC_SLOT__NAME?"
    ]
    (folder / ".env").unlink()
    (folder / "cdc.toml").write_text("[slot]\nnames = 'x'\n[nothing]\na = 1\n")
    lines = problems(monkeypatch)
    assert (
        "CDC_SLOT__NAMES (cdc.toml): no such setting; did you mean CDC_SLOT__NAME?"
    ) in lines
    assert any(line.startswith("CDC_NOTHING (cdc.toml): no such") for line in lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[slot\n", "line 1"), (b"name = '\xff'\n", "not UTF-8")],
)
def test_a_toml_file_that_cannot_be_read_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    (folder / "cdc.toml").write_bytes(content)

    (line,) = problems(monkeypatch)

    assert line.startswith("cdc.toml cannot be read")
    assert words in line


@pytest.mark.parametrize("name", [".env", "cdc.toml"])
def test_a_folder_in_the_place_of_a_file_is_not_taken_for_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What a container engine makes of a mount whose source is not there."""
    (folder / name).mkdir()

    (line,) = problems(monkeypatch)

    assert line.startswith(f"{name} cannot be read: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"CDC_SLOT__NAME=a\nCDC_SINK\n", ".env line 2 cannot be read"),
        (b"X=1\nCDC_NAME='s3cr3t\nCDC_SINK=jsonl\n", ".env line 2 cannot be read"),
        (b"X='s3cr3t\nCDC_SINK='jsonl'\n", ".env line 1 cannot be read"),
        (b"CDC_NAME=\xff\n", ".env cannot be read: it is not UTF-8"),
    ],
)
def test_a_line_of_ours_in_env_that_cannot_be_read_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    (folder / ".env").write_bytes(content)

    (line,) = problems(monkeypatch)

    assert words in line
    assert "s3cr3t" not in line


def test_what_other_programs_write_into_env_is_theirs(folder: Path) -> None:
    (folder / ".env").write_text(
        "export -f x\nA='b\nSLOTS\nY=${Z}\nCDC_SLOT__NAME=a_${Y}b\n"
    )

    assert load_settings().slot.name == "a_b"


def test_wrong_types_in_toml_are_lines_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cdc.toml").write_text(
        "name = 3\nslot = 's3cr3t'\ngrace_s = []\n[record.headers]\nx = 1\n"
    )

    assert problems(monkeypatch) == [
        "CDC_NAME: must be a text",
        "CDC_SLOT: is a group of settings, not a value: write a table in cdc.toml",
        "CDC_RECORD__HEADERS: header 'x' must be a text",
        "CDC_GRACE_S: must be a number",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "CDC_POSTGRES__PASSWORD_FILE",
        "CDC_POSTGRES__PASSWORD_COMMAND",
        "CDC_KAFKA__SSL__CAFILE",
        "CDC_KAFKA__SASL__PASSWORD",
        "CDC_HTTP__LISTEN",
        "CDC_ALARMS__NOTIFY",
    ],
)
def test_an_optional_setting_left_empty_is_not_set(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Compose files write ``${NAME:-}``."""
    monkeypatch.setenv(name, "")

    assert effective(load_settings())[name] is None


def test_the_alarms_of_a_relay_are_those_of_the_slots_command() -> None:
    assert load_settings().alarms.limits() == Limits()


@pytest.mark.parametrize(
    "name",
    [
        "CDC_SERVICE_HOST",
        "CDC_SERVICE_PORT",
        "CDC_SERVICE_PORT_HTTP",
        "CDC_PORT",
        "CDC_PORT_8080_TCP",
        "CDC_PORT_8080_TCP_ADDR",
        "CDC_KAFKA_SERVICE_HOST",
        "CDC_KAFKA_PORT_9092_TCP_PROTO",
    ],
)
def test_what_kubernetes_puts_there_for_a_service_is_let_be(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:8080")

    load_settings()
    assert unknown_names([name], Settings) == []


KEY_VALUE = "host=db.example user=app port=5433 dbname=shop sslmode=require"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:s3cr3t%2Fx@db.example:5433/shop?sslmode=require",
        f"{KEY_VALUE} password=s3cr3t",
    ],
)
def test_of_a_dsn_all_but_the_password_is_shown(
    monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("CDC_POSTGRES__DSN", dsn)
    monkeypatch.setenv("CDC_KAFKA__SASL__PASSWORD", "s3cr3t")

    shown = effective(load_settings())

    assert "s3cr3t" not in str(shown)
    for part in ("db.example", "5433", "shop", "app", "require"):
        assert part in shown["CDC_POSTGRES__DSN"]
    assert shown["CDC_KAFKA__SASL__PASSWORD"] == MASK


def test_a_dsn_that_cannot_be_read_is_masked_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CDC_POSTGRES__DSN", "s3cr3t and more")

    assert effective(load_settings())["CDC_POSTGRES__DSN"] == "***"


def test_column_settings_list_alternatives() -> None:
    assert column_names("") == ()
    assert column_names("a") == ("a",)
    assert column_names("old, new") == ("old", "new")
    assert column_names('"with, comma",x') == ("with, comma", "x")
