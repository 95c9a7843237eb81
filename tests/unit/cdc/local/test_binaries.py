"""What is missing is named, with the command that brings it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from cdc.errors import RequirementMissing
from cdc.local import LocalKafka, LocalPostgres
from cdc.local.kafka_jars import kafka_jars

if TYPE_CHECKING:
    from pathlib import Path


def quiet(_text: str) -> None:
    pass


def test_an_unknown_postgres_version_is_answered_with_the_known_ones() -> None:
    with pytest.raises(RequirementMissing, match="Postgres 9") as caught:
        LocalPostgres("9")
    assert caught.value.hint == "take 14, 15, 16, 17, 18"


def test_npm_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WALFERRY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RequirementMissing) as caught:
        LocalPostgres("17")
    assert caught.value.hint == "apt-get install npm"


def test_java_and_maven_are_named_where_they_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementMissing, match="java 17 or later and mvn") as caught:
        kafka_jars("4.4.0", "system", quiet)
    assert "walferry[demo]" in caught.value.hint


@pytest.mark.parametrize("server", [LocalPostgres, LocalKafka])
def test_the_extra_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    server: type[LocalPostgres | LocalKafka],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(RequirementMissing) as caught:
        server()
    assert caught.value.hint == "pip install 'walferry[demo]'"


def test_java_too_old_for_kafka_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("java", "mvn"):
        path = tmp_path / program
        path.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(RequirementMissing, match="java 17"):
        kafka_jars("4.4.0", "system", quiet)
