from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cdc.finding import Status
from cdc.outbox import TableName
from cdc.requirements import Wanted
from cdc.requirements.cautions import cautions
from cdc.requirements.server import Server, demands, listed_libraries, room

if TYPE_CHECKING:
    from cdc.finding import Finding

NOW = datetime(2026, 12, 1, tzinfo=UTC)
GOOD = Server(
    version=180006,
    version_text="18.6",
    wal_level="logical",
    encoding="UTF8",
    database="shop",
    is_standby=False,
    role="relay",
    has_rds_role=False,
    system_id="7714132604622879660",
    timeline=1,
    max_slots=10,
    used_slots=3,
    max_wal_senders=10,
    used_wal_senders=3,
    slot_wal_keep_mb=51200,
    wal_sender_timeout_ms=60000,
    idle_slot_timeout_s=0,
    plugin_libraries="pgoutput, test_decoding",
    tracks_commits=True,
    old_prepared=[],
    backend_pid=1,
    clock=NOW,
)


def wanted(plugin: str = "pgoutput") -> Wanted:
    return Wanted(
        slot="walferry",
        plugin=plugin,
        publication="walferry",
        tables=(TableName("public", "outbox"),),
        required_columns=(("id",),),
    )


def judged(server: Server, plugin: str = "pgoutput") -> dict[str, Finding]:
    found = [*demands(server, wanted(plugin)), *cautions(server, NOW)]
    return {each.name: each for each in found}


def test_a_good_server_meets_everything() -> None:
    assert {each.status for each in judged(GOOD).values()} == {Status.OK}


@pytest.mark.parametrize(
    ("change", "plugin", "name", "said"),
    [
        ({"version": 130023, "version_text": "13.23"}, "pgoutput", "version", "13.23"),
        ({"version": 150020, "is_standby": True}, "pgoutput", "primary", "standby"),
        ({"wal_level": "replica"}, "pgoutput", "wal_level", "replica"),
        ({"encoding": "SQL_ASCII"}, "pgoutput", "encoding", "SQL_ASCII"),
        ({"encoding": "SQL_ASCII"}, "wal2json", "encoding", "SQL_ASCII"),
        ({"encoding": "LATIN1"}, "wal2json", "encoding", "LATIN1"),
    ],
)
def test_a_server_that_cannot_serve_is_refused(
    change: dict[str, object], plugin: str, name: str, said: str
) -> None:
    found = judged(replace(GOOD, **change), plugin)[f"postgres.{name}"]  # type: ignore[arg-type]  # fields by name

    assert found.status is Status.FAILURE
    assert said in found.detail
    assert found.remedy


def test_pgoutput_converts_what_is_not_utf8() -> None:
    found = judged(replace(GOOD, encoding="EUC_JP"))["postgres.encoding"]

    assert found.status is Status.OK


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"is_standby": True}, "primary", "a standby"),
        ({"slot_wal_keep_mb": -1}, "max_slot_wal_keep_size", "disk is full"),
        ({"idle_slot_timeout_s": 60}, "idle_replication_slot_timeout", "60 s"),
        ({"wal_sender_timeout_ms": 0}, "wal_sender_timeout", "is 0"),
        ({"wal_sender_timeout_ms": 2500}, "wal_sender_timeout", "2.5 s"),
        ({"old_prepared": ["a'b", "c"]}, "prepared_transactions", "2 prepared"),
        ({"clock": NOW + timedelta(hours=2)}, "clock", "7200 s ahead of"),
        ({"clock": NOW - timedelta(minutes=2)}, "clock", "120 s behind"),
    ],
)
def test_what_may_hurt_later_is_a_warning_with_its_remedy(
    change: dict[str, object], name: str, said: str
) -> None:
    found = judged(replace(GOOD, **change))[f"postgres.{name}"]  # type: ignore[arg-type]  # fields by name

    assert found.status is Status.WARNING
    assert said in found.detail
    assert found.remedy


def test_servers_before_18_have_no_idle_slot_timeout_to_speak_of() -> None:
    names = judged(replace(GOOD, idle_slot_timeout_s=None))

    assert "postgres.idle_replication_slot_timeout" not in names


def test_a_list_of_plugins_that_our_role_may_not_see_is_not_judged() -> None:
    names = judged(replace(GOOD, plugin_libraries=None), "wal2json")

    assert "plugin.allowed" not in names


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("pgoutput, test_decoding", "pgoutput, test_decoding"),
        ("pgoutput, decoderbufs", "pgoutput, test_decoding, decoderbufs"),
        ('"pgoutput, test_decoding, wal2json"', "pgoutput, test_decoding"),
        ("", "pgoutput, test_decoding"),
    ],
)
def test_a_plugin_that_is_not_listed_is_refused_with_the_statement(
    setting: str, kept: str
) -> None:
    server = replace(GOOD, plugin_libraries=setting)
    found = judged(server, "wal2json")["plugin.allowed"]

    assert found.status is Status.FAILURE
    assert found.remedy == (
        f"ALTER SYSTEM SET output_plugin_libraries = {kept}, wal2json;"
        " SELECT pg_reload_conf();"
    )


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("pgoutput, test_decoding", ["pgoutput", "test_decoding"]),
        ('pgoutput,"my ""odd"", one"', ["pgoutput", 'my "odd", one']),
        ("", []),
    ],
)
def test_the_servers_list_is_read_name_by_name(setting: str, names: list[str]) -> None:
    assert listed_libraries(setting) == names


def test_room_is_asked_for_only_when_it_is_needed() -> None:
    full = replace(GOOD, used_slots=10, used_wal_senders=10)

    needed = room(full, needs_slot=True, needs_wal_sender=True)
    spared = room(full, needs_slot=False, needs_wal_sender=False)

    assert [each.status for each in needed] == [Status.FAILURE] * 2
    assert "max_replication_slots = 20" in needed[0].remedy
    assert "max_wal_senders = 20" in needed[1].remedy
    assert [each.status for each in spared] == [Status.OK] * 2
