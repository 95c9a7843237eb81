"""The log: its form, what gets into it, and what never does."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pydantic import SecretStr

from cdc.app.logs import secrets_of, set_up_logs
from cdc.settings.kafka import SaslSettings
from cdc.settings.models import LogSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

RAW = "s3cr3t-Ä/@:%'\"\\"
PERCENT = "s3cr3t-%C3%84%2F%40%3A%25%27%22%5C"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as it was."""
    names = ("", "cdc", "slots", "aiokafka")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def settings(dsn: str = "", **log: Any) -> Settings:
    plain = Settings.model_construct()
    return plain.model_copy(
        update={
            "log": LogSettings(**({"format": "json"} | log)),
            "postgres": plain.postgres.model_copy(update={"dsn": SecretStr(dsn)}),
            "kafka": plain.kafka.model_copy(
                update={"sasl": SaslSettings(password=SecretStr(RAW))}
            ),
        }
    )


def fail(reason: str) -> None:
    raise ValueError(reason)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_a_line_is_json_with_who_where_and_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs(settings(), name="shop.walferry")

    structlog.get_logger("cdc.somewhere").info("happened", count=3)

    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "happened",
        "count": 3,
        "level": "info",
        "logger": "cdc.somewhere",
        "relay": "shop.walferry",
        "slot": "walferry",
    }


def test_on_a_console_it_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(settings(format="console"), name="shop.walferry")

    structlog.get_logger("cdc.somewhere").warning("happened", count=3)

    err = capsys.readouterr().err
    assert "happened" in err
    assert "count=3" in err
    assert not err.startswith("{")


def test_what_is_less_than_the_level_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs(settings(level="warning"), name="x")
    ours = structlog.get_logger("cdc.somewhere")

    ours.info("quiet")
    ours.warning("loud")

    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_libraries_are_heard_from_warnings_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs(settings(level="debug"), name="x")
    library = logging.getLogger("somebody.else")

    library.info("chatter")
    library.warning("%s is wrong", "this")

    assert [line["event"] for line in lines(capsys)] == ["this is wrong"]


def test_a_command_that_answers_on_stdout_logs_errors_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs(settings(level="info"), name="x", only_errors=True)

    structlog.get_logger("cdc.somewhere").warning("told on stdout")
    logging.getLogger("somebody.else").warning("told on stdout")
    structlog.get_logger("cdc.somewhere").error("ours")

    assert [line["event"] for line in lines(capsys)] == ["ours"]


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("secret", [RAW, PERCENT, json.dumps(RAW)[1:-1]])
def test_a_secret_is_blotted_out_wherever_in_a_line_it_stands(
    capsys: pytest.CaptureFixture[str], form: str, secret: str
) -> None:
    set_up_logs(settings(format=form), name="x")
    ours = structlog.get_logger("cdc.somewhere")

    ours.error("in_a_value", value=f"<{secret}>")
    ours.error("deep_inside", value={"a": [secret]})
    ours.error(f"in_the_event {secret}")
    logging.getLogger("somebody.else").error("in an argument: %s", secret)
    try:
        fail(secret)
    except ValueError as exc:
        ours.error("in_an_exception", exc_info=exc)
        logging.getLogger("somebody.else").exception("in another")

    err = capsys.readouterr().err
    assert "s3cr3t" not in err
    assert err.count("***") >= 6
    assert "ValueError" in err


def test_a_traceback_shows_no_local_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs(settings(format="console"), name="x")
    credential = f"local-{len(__name__)}"

    try:
        fail("why")
    except ValueError as exc:
        structlog.get_logger("cdc.somewhere").error("failed", exc_info=exc)

    err = capsys.readouterr().err
    assert "ValueError: why" in err
    assert credential not in err


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:pass-w%C3%B6rd@db/shop",
        "host=db user=app password='pass-wörd'",
    ],
)
def test_the_dsns_password_is_known_in_every_form(dsn: str) -> None:
    known = secrets_of(settings(dsn))

    assert {"pass-wörd", "pass-w%C3%B6rd", "pass-w\\u00f6rd"} <= set(known)
    assert "app" not in known
    assert known == sorted(known, key=len, reverse=True)


def test_a_dsn_that_cannot_be_read_is_a_secret_whole() -> None:
    assert "app pass-word" in secrets_of(settings("app pass-word"))
