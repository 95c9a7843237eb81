from __future__ import annotations

from cdc.outbox import TableName
from cdc.requirements import Wanted, init_statements, statements

ODD = TableName('We.ird "Sch"', "Out,box*")
DEFAULT_GROUPS = (("id",), ("aggregatetype",), ("aggregateid",), ("payload",))


def wanted(
    *,
    plugin: str = "pgoutput",
    groups: tuple[tuple[str, ...], ...] = DEFAULT_GROUPS,
) -> Wanted:
    return Wanted(
        slot="o'slot",
        plugin=plugin,
        publication='Pub"1',
        tables=(TableName("public", "outbox"), ODD),
        required_columns=groups,
    )


def test_the_publication_is_made_before_the_slot_and_names_are_quoted() -> None:
    table, odd_table, publication, slot = init_statements(wanted())

    assert table.startswith('CREATE TABLE IF NOT EXISTS "public"."outbox" (')
    assert odd_table.startswith(
        'CREATE TABLE IF NOT EXISTS "We.ird ""Sch"""."Out,box*" ('
    )
    assert publication == (
        'CREATE PUBLICATION "Pub""1" FOR TABLE "public"."outbox",'
        ' "We.ird ""Sch"""."Out,box*"'
        " WITH (publish = 'insert', publish_via_partition_root = true);"
    )
    assert slot == (
        "SELECT pg_catalog.pg_create_logical_replication_slot('o''slot', 'pgoutput');"
    )


def test_the_table_made_has_the_columns_that_it_is_said_to_have() -> None:
    text = statements.create_table(ODD)
    body = text[text.index("(") + 1 :].splitlines()[1:-1]

    assert {line.split()[0] for line in body} == statements.DEFAULT_COLUMNS


def test_wal2json_needs_no_publication() -> None:
    assert not any(
        "PUBLICATION" in text for text in init_statements(wanted(plugin="wal2json"))
    )


def test_a_table_of_other_columns_is_not_made_up() -> None:
    first, second, *_ = init_statements(wanted(groups=(("event_id",),)))

    assert first.startswith("-- public.outbox has to exist")
    assert second.startswith("-- ")


def test_a_group_is_satisfied_by_any_of_its_names() -> None:
    assert statements.fits_default_columns(wanted(groups=(("old_id", "id"),)))
    assert not statements.fits_default_columns(wanted(groups=(("a", "b"), ("id",))))


def test_the_plugin_list_is_never_one_quoted_string() -> None:
    assert statements.allow_plugin("wal2json") == (
        "ALTER SYSTEM SET output_plugin_libraries = pgoutput, test_decoding, wal2json;"
        " SELECT pg_reload_conf();"
    )


def test_plugins_that_are_allowed_already_stay_allowed() -> None:
    assert statements.allow_plugin("wal2json", ["pgoutput", "decoder-bufs"]) == (
        "ALTER SYSTEM SET output_plugin_libraries ="
        " pgoutput, test_decoding, 'decoder-bufs', wal2json;"
        " SELECT pg_reload_conf();"
    )


def test_a_row_filter_survives_the_removal_of_a_column_list() -> None:
    assert statements.publish_all_columns("p", TableName("s", "t"), "(a > 1)") == (
        'BEGIN; ALTER PUBLICATION "p" DROP TABLE "s"."t";'
        ' ALTER PUBLICATION "p" ADD TABLE "s"."t" WHERE ((a > 1)); COMMIT;'
    )


def test_the_right_to_replicate_is_granted_in_the_servers_own_way() -> None:
    assert statements.grant_replication("re lay", has_rds_role=True) == (
        'GRANT rds_replication TO "re lay";'
    )
    assert statements.grant_replication("re lay", has_rds_role=False) == (
        'ALTER ROLE "re lay" REPLICATION;'
    )
