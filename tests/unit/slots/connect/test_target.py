"""DSNs are taken apart, named and scrubbed without ever showing a secret."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from pydantic import SecretStr

from slots.connect.target import Target, address, parse, scrub, secrets
from slots.errors import BadConnectionSettings

PASSWORD = "s3cr3t-Ä/@:%"  # noqa: S105 - a test's


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@h:99/d", "h:99/d as u"),
        ("host=h dbname=d user=u password=p", "h:5432/d as u"),
        ("postgresql://u@h1,h2/d", "h1:5432,h2:5432/d as u"),
        ("postgresql://u@h1:1,h2:2/d", "h1:1,h2:2/d as u"),
        ("service=prod user=u dbname=d", "service prod:5432/d as u"),
        ("postgresql://u@/d", "local socket:5432/d as u"),
        ("hostaddr=10.0.0.1 user=u", "10.0.0.1:5432/u as u"),
        ("postgresql://u:p@ss@h/d", "a DSN that cannot be read"),
    ],
)
def test_an_address_names_the_target_and_no_secret(
    dsn: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGUSER", "PGDATABASE", "PGPORT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)

    assert address(Target(dsn=SecretStr(dsn))) == shown


def test_an_address_takes_libpqs_variables_where_the_dsn_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGUSER", "ops")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)

    assert address(Target()) == "db.example:5432/ops as ops"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:sec@ret@h/d",
        "postgresql://u:sec/ret@h/d",
        "postgresql://u:1/secret@h/d",
        "postgresql://u:%secret@h/d",
        "host=h password='secret",
        "host=h password=sec ret",
        "secret",
        "host=h port=secret",
    ],
)
def test_a_dsn_that_cannot_be_read_is_refused_and_not_quoted(dsn: str) -> None:
    with pytest.raises(BadConnectionSettings) as caught:
        parse(SecretStr(dsn))

    said = f"{caught.value} {caught.value.hint}"
    assert "sec" not in said
    assert "ret" not in said.replace("seems", "")
    assert caught.value.hint
    assert caught.value.__context__ is None


def test_a_target_does_not_print_its_dsn() -> None:
    assert PASSWORD not in repr(Target(dsn=SecretStr(f"password='{PASSWORD}'")))


@pytest.mark.parametrize(
    "form",
    [
        PASSWORD,
        quote(PASSWORD, safe=""),
        quote(PASSWORD, safe="").lower(),
        quote(PASSWORD),
        "s3cr3t-\\u00c4/@:%",
    ],
)
def test_a_secret_is_scrubbed_in_every_form(form: str) -> None:
    hidden = secrets({"password": PASSWORD, "host": "h"})

    assert scrub(f"connection to\n h failed: {form}!", hidden) == (
        "connection to h failed: ***!"
    )


def test_quoted_forms_are_scrubbed() -> None:
    hidden = secrets({"password": "it's \\ a", "sslpassword": "other"})

    said = r"password='it\'s \\ a' 'it''s \ a' other"

    assert scrub(said, hidden) == "password='***' '***' ***"


def test_the_environments_password_is_a_secret_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)

    assert PASSWORD in secrets({})
