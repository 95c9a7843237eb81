"""What `cdc init` makes, what it leaves alone, and what it says when it may not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from cdc.errors import RequirementMissing
from cdc.outbox import TableName
from cdc.requirements import init, init_statements, making
from tests.integration.requirements.stage import PARTITIONED

if TYPE_CHECKING:
    from tests.integration.requirements.stage import Stage

pytestmark = pytest.mark.postgres

TABLES = 'public.outbox,public."Out,box"'


async def test_an_empty_database_gets_everything_and_a_second_run_nothing(
    bare_stage: Stage,
) -> None:
    stage = bare_stage
    wanted = stage.wanted(TABLES)

    assert await init(stage.target, wanted) == [
        "table public.outbox created",
        'table public."Out,box" created',
        "publication walferry created",
        f"slot {stage.source.slot} created (pgoutput)",
    ]

    assert await stage.unmet(wanted) == []
    facts = await stage.facts(wanted)
    assert list(facts.tables) == list(wanted.tables)
    assert await init(stage.target, wanted) == []


async def test_the_statements_shown_are_enough_by_themselves(
    bare_stage: Stage,
) -> None:
    stage = bare_stage
    wanted = stage.wanted(TABLES)

    await stage.run("\n".join(init_statements(wanted)))

    assert await stage.unmet(wanted) == []
    assert await init(stage.target, wanted) == []


async def test_a_table_that_exists_is_left_as_it_is(stage: Stage) -> None:
    await stage.source.drop_slot()
    await stage.run("DROP PUBLICATION walferry; ALTER TABLE outbox ADD mine int")
    await stage.source.insert_event()
    query = "SELECT xmin::text, oid FROM pg_class WHERE relname = 'outbox'"
    before = await stage.source.fetch(query)

    done = await init(stage.target, stage.wanted())

    assert [line.split()[0] for line in done] == ["publication", "slot"]
    assert await stage.source.fetch(query) == before
    assert await stage.source.value("SELECT count(*) FROM outbox") == 1


async def test_a_publication_gains_the_table_it_lacks(stage: Stage) -> None:
    wanted = stage.wanted("public.outbox,public.second")
    await stage.run("CREATE TABLE second (LIKE outbox INCLUDING ALL)")

    assert await init(stage.target, wanted) == [
        "publication walferry: public.second added"
    ]
    assert await stage.unmet(wanted) == []


async def test_a_publication_of_the_users_own_is_not_changed_to_fit(
    stage: Stage,
) -> None:
    await stage.run("ALTER PUBLICATION walferry SET (publish = 'update')")

    with pytest.raises(RequirementMissing, match="does not publish inserts") as refused:
        await init(stage.target, stage.wanted())

    assert refused.value.hint.startswith("ALTER PUBLICATION")
    assert not await stage.source.value("SELECT pubinsert FROM pg_publication")


async def test_a_table_that_is_published_by_its_partitions_is_not_added_again(
    stage: Stage,
) -> None:
    await stage.run(
        f"DROP TABLE outbox; {PARTITIONED};"
        "ALTER PUBLICATION walferry ADD TABLE outbox;"
        "ALTER PUBLICATION walferry SET (publish_via_partition_root = false)"
    )

    with pytest.raises(RequirementMissing, match="under their partitions' names"):
        await init(stage.target, stage.wanted())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("CREATE UNLOGGED TABLE odd (LIKE outbox)", "is unlogged"),
        ("CREATE VIEW odd AS TABLE outbox", "is a view"),
        ("CREATE TABLE odd (id uuid)", "has no column aggregateid"),
    ],
)
async def test_what_cannot_be_an_outbox_is_not_published(
    stage: Stage, made: str, said: str
) -> None:
    await stage.run(made)

    with pytest.raises(RequirementMissing, match=said):
        await init(stage.target, stage.wanted("public.odd", publication="second"))

    assert await stage.source.value("SELECT count(*) FROM pg_publication") == 1


async def test_a_slot_that_does_not_fit_is_never_replaced(stage: Stage) -> None:
    await stage.source.drop_slot()
    await stage.run(
        "SELECT pg_create_logical_replication_slot"
        f"('{stage.source.slot}', 'test_decoding')"
    )

    with pytest.raises(RequirementMissing, match="decodes with test_decoding"):
        await init(stage.target, stage.wanted())

    row = await stage.source.slot_row()
    assert row is not None
    assert row["plugin"] == "test_decoding"


async def test_no_second_table_is_made_for_a_slip_of_the_shift_key(
    stage: Stage,
) -> None:
    with pytest.raises(RequirementMissing, match=r"but public\.outbox does") as refused:
        await init(stage.target, stage.wanted("public.OutBox"))

    assert "CDC_OUTBOX__TABLES=public.outbox" in refused.value.hint
    assert await stage.source.value("SELECT to_regclass('public.\"OutBox\"')") is None


async def test_a_table_for_other_columns_is_the_users_to_make(
    bare_stage: Stage,
) -> None:
    stage = bare_stage
    wanted = stage.wanted("public.events", groups=(("event_id",),))

    with pytest.raises(RequirementMissing, match=r"public\.events does not exist"):
        await init(stage.target, wanted)

    assert await stage.source.value("SELECT to_regclass('public.events')") is None


async def test_a_missing_schema_is_said(bare_stage: Stage) -> None:
    with pytest.raises(RequirementMissing, match='"shop" does not exist') as refused:
        await init(bare_stage.target, bare_stage.wanted("shop.outbox"))

    assert "schema" in refused.value.hint


async def test_a_slot_that_has_to_wait_gives_up_and_names_the_writers(
    stage: Stage,
) -> None:
    """Named to a role without pg_monitor too; afterwards nothing is half made."""
    await stage.source.drop_slot()
    await stage.run(
        f"CREATE ROLE {stage.source.slot} LOGIN REPLICATION PASSWORD 'not-a-secret'"
    )
    try:
        async with await psycopg.AsyncConnection.connect(
            stage.source.dsn, application_name="slow-report"
        ) as writer:
            await writer.execute("SELECT pg_current_xact_id()")
            pid = writer.info.backend_pid
            stage.act_as(stage.source.slot)

            with pytest.raises(RequirementMissing) as gave_up:
                await init(stage.target, stage.wanted(), slot_timeout_s=0.3)

            await writer.rollback()
        assert f"pid {pid} ({stage.source.database}, " in str(gave_up.value)
        assert "slow-report" in str(gave_up.value)
        assert await stage.source.slot_row() is None
        assert await init(stage.target, stage.wanted()) != []
    finally:
        await stage.run(f"DROP ROLE {stage.source.slot}")


async def test_ddl_does_not_queue_behind_a_lock_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_LOCK_TIMEOUT_S", 0.2)
    await stage.run("ALTER PUBLICATION walferry DROP TABLE outbox")
    async with await psycopg.AsyncConnection.connect(stage.source.dsn) as holder:
        await holder.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")

        async with asyncio.timeout(10):
            with pytest.raises(RequirementMissing, match="locked"):
                await init(stage.target, stage.wanted())

        await holder.rollback()
    assert await init(stage.target, stage.wanted()) == [
        f"publication walferry: {TableName('public', 'outbox')} added"
    ]


@pytest.mark.parametrize("major", ["15"])
async def test_wal2json_gets_no_publication(bare_stage: Stage) -> None:
    wanted = bare_stage.wanted(plugin="wal2json")

    await init(bare_stage.target, wanted)

    assert await bare_stage.source.fetch("SELECT FROM pg_publication") == []
    assert await bare_stage.unmet(wanted) == []
