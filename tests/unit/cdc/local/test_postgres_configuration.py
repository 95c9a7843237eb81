from __future__ import annotations

from cdc.local.postgres_configuration import access_rules, configuration


def test_logical_decoding_is_on_and_wal2json_allowed_where_that_is_asked() -> None:
    text = configuration({}, has_plugin_allowance=True)
    assert "wal_level = 'logical'\n" in text
    assert "output_plugin_libraries = 'pgoutput, test_decoding, wal2json'\n" in text


def test_a_server_that_does_not_know_the_allowance_is_not_told_of_it() -> None:
    text = configuration({}, has_plugin_allowance=False)
    assert "output_plugin_libraries" not in text


def test_a_tests_own_settings_win_and_are_quoted() -> None:
    text = configuration(
        {"wal_level": "replica", "application_name": r"it's a \ "},
        has_plugin_allowance=False,
    )
    assert "wal_level = 'replica'\n" in text
    assert "logical" not in text
    assert r"application_name = 'it''s a \\ '" in text


def test_own_access_rules_stand_above_the_trust() -> None:
    lines = access_rules(["host all relay 127.0.0.1/32 scram-sha-256"]).splitlines()
    assert lines[0] == "host all relay 127.0.0.1/32 scram-sha-256"
    assert "host all all 127.0.0.1/32 trust" in lines[1:]
