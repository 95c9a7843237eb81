"""What a session learns at its start, and what ends it while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.errors import OperatorNeeded, RequirementMissing
from cdc.outbox import TableName
from cdc.requirements import partition_root, still_covered
from slots.connect import connect
from tests.integration.requirements.stage import PARTITIONED, Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

pytestmark = pytest.mark.postgres

OUTBOX = TableName("public", "outbox")


async def test_the_facts_are_those_of_the_server(stage: Stage) -> None:
    identity = (
        await stage.source.fetch(
            "SELECT system_identifier::text AS id,"
            " current_setting('server_version_num')::int AS version,"
            " 'outbox'::regclass::oid::int AS oid FROM pg_control_system()"
        )
    )[0]

    facts = await stage.facts()

    assert facts.server_version == identity["version"]
    assert facts.system_id == identity["id"]
    assert facts.timeline == 1
    assert facts.database == stage.source.database
    assert facts.server_encoding == "UTF8"
    assert facts.slot.name == stage.source.slot
    assert facts.slot.confirmed_flush_lsn is not None
    assert facts.tables == {OUTBOX: identity["oid"]}
    assert facts.partitioned == frozenset()
    assert facts.wal_sender_timeout_s == 60.0


async def test_a_timeout_of_the_roles_own_is_the_one_that_counts(
    stage: Stage,
) -> None:
    await stage.run(
        f"ALTER DATABASE {stage.source.database} SET wal_sender_timeout = '1500ms'"
    )

    assert (await stage.facts()).wal_sender_timeout_s == 1.5


async def test_domains_over_bytea_are_bytea_however_deep(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("15", "wal2json")
    await source.create_outbox()
    stage = Stage(source)
    await stage.run(
        'CREATE DOMAIN "Raw" AS bytea; CREATE DOMAIN deeper AS "Raw";'
        "CREATE DOMAIN plain AS text;"
        'ALTER TABLE outbox ADD a bytea, ADD b "Raw", ADD c deeper, ADD d plain;'
        "INSERT INTO outbox (aggregatetype, aggregateid, type, a, b, c, d)"
        " VALUES ('t', 'k', 'x', '\\x00', '\\x00', '\\x00', 'text')"
    )

    facts = await stage.facts()

    oids = await source.fetch(
        "SELECT oid::int FROM pg_type WHERE typname IN ('bytea', 'Raw', 'deeper')"
    )
    assert facts.bytea_types == {row["oid"] for row in oids}


UNCOVERED = {
    "table dropped": "DROP TABLE outbox",
    "table renamed": "ALTER TABLE outbox RENAME TO outbox_old",
    "table no longer published": "ALTER PUBLICATION walferry DROP TABLE outbox",
    "publication dropped": "DROP PUBLICATION walferry",
    "inserts no longer published": "ALTER PUBLICATION walferry SET (publish='delete')",
    "column renamed": "ALTER TABLE outbox RENAME aggregateid TO agg",
    "column dropped": "ALTER TABLE outbox DROP COLUMN payload",
}


@pytest.mark.parametrize("change", UNCOVERED.values(), ids=list(UNCOVERED))
async def test_a_run_ends_when_something_breaks_its_coverage(
    stage: Stage, change: str
) -> None:
    facts = await stage.facts()
    async with await connect(stage.target) as connection:
        await still_covered(connection, stage.wanted(), facts)

        await stage.run(change)

        with pytest.raises(RequirementMissing) as ended:
            await still_covered(connection, stage.wanted(), facts)
    assert ended.value.hint


async def test_a_table_made_again_under_its_name_needs_an_operator(
    stage: Stage,
) -> None:
    """Its publication covers it again, but rows may have come in between."""
    facts = await stage.facts()
    await stage.run(
        "CREATE TABLE copy (LIKE outbox INCLUDING ALL); DROP TABLE outbox;"
        "ALTER TABLE copy RENAME TO outbox; ALTER PUBLICATION walferry ADD TABLE outbox"
    )

    async with await connect(stage.target) as connection:
        with pytest.raises(OperatorNeeded, match=r"public\.outbox was dropped"):
            await still_covered(connection, stage.wanted(), facts)


async def test_changes_that_break_nothing_end_nothing(stage: Stage) -> None:
    facts = await stage.facts()
    await stage.run(
        "ALTER TABLE outbox ADD note text DEFAULT 'd'; CREATE TABLE noise (a int);"
        "ALTER TABLE outbox ALTER type TYPE varchar(80)"
    )

    async with await connect(stage.target) as connection:
        await still_covered(connection, stage.wanted(), facts)


async def test_a_renamed_column_is_covered_while_both_names_are_mapped(
    stage: Stage,
) -> None:
    wanted = stage.wanted(groups=(("id",), ("aggregateid", "agg")))
    facts = await stage.facts(wanted)
    await stage.run("ALTER TABLE outbox RENAME aggregateid TO agg")

    async with await connect(stage.target) as connection:
        await still_covered(connection, wanted, facts)


async def test_a15_partitions_belong_to_their_topmost_ancestor(stage: Stage) -> None:
    """Field case A15: also a partition of a partition, made while the relay runs."""
    await stage.run(
        f"DROP TABLE outbox; {PARTITIONED}; ALTER PUBLICATION walferry ADD TABLE outbox"
    )
    facts = await stage.facts()
    await stage.run(
        "CREATE TABLE outbox_b PARTITION OF outbox FOR VALUES IN ('b')"
        " PARTITION BY HASH (id);"
        'CREATE TABLE "Leaf 1" PARTITION OF outbox_b'
        " FOR VALUES WITH (MODULUS 1, REMAINDER 0);"
        "CREATE TABLE apart (a int); CREATE INDEX apart_index ON apart (a)"
    )

    assert facts.partitioned == {OUTBOX}
    async with await connect(stage.target) as connection:
        await still_covered(connection, stage.wanted(), facts)
        whole = (OUTBOX, facts.tables[OUTBOX])
        for part in ("outbox", "outbox_a", "outbox_b", "Leaf 1"):
            assert await partition_root(connection, "public", part) == whole
        apart = await partition_root(connection, "public", "apart")
        assert apart is not None
        assert apart[0] == TableName("public", "apart")
        assert await partition_root(connection, "public", "apart_index") is None
        assert await partition_root(connection, "public", "outbox_z") is None
        await stage.run("ALTER TABLE outbox DETACH PARTITION outbox_b")
        detached = await partition_root(connection, "public", "Leaf 1")
        assert detached is not None
        assert detached[0] == TableName("public", "outbox_b")


async def test_a11_odd_names_are_found_exactly_as_written(stage: Stage) -> None:
    """Field case A11: dots, commas, spaces, capitals; a twin in lower case beside."""
    await stage.run(
        'CREATE SCHEMA "We.ird Sch"; CREATE SCHEMA "we.ird sch";'
        'CREATE TABLE "We.ird Sch"."Out,box*" (LIKE outbox INCLUDING ALL);'
        'CREATE TABLE "we.ird sch"."out,box*" (LIKE outbox INCLUDING ALL);'
        'ALTER PUBLICATION walferry ADD TABLE "We.ird Sch"."Out,box*"'
    )
    odd = TableName("We.ird Sch", "Out,box*")

    facts = await stage.facts(stage.wanted('"We.ird Sch"."Out,box*"'))

    assert list(facts.tables) == [odd]
    oid = await stage.source.value(
        "SELECT c.oid::int FROM pg_class c WHERE relname = 'Out,box*'"
    )
    assert facts.tables[odd] == oid


@pytest.mark.parametrize("written", ["public.Outbox", '"PUBLIC".outbox', "app.outbox"])
async def test_a11_a_table_of_the_wrong_case_is_refused_with_its_near_match(
    stage: Stage, written: str
) -> None:
    """Field case A11: refused before anything is read from the slot."""
    before = await stage.source.slot_row()

    with pytest.raises(RequirementMissing) as refused:
        await stage.facts(stage.wanted(written))

    assert "near match: public.outbox" in str(refused.value)
    assert refused.value.hint == "CDC_OUTBOX__TABLES=public.outbox"
    assert await stage.source.slot_row() == before
