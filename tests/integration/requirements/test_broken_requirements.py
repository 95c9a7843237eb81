"""Each requirement broken on a real server: found, refused, mended by its remedy."""

from __future__ import annotations

import pytest

from cdc.errors import RequirementMissing
from cdc.finding import Status
from slots.errors import SlotMissing
from tests.integration.requirements.stage import PARTITIONED, Stage, before, since

pytestmark = pytest.mark.postgres

REMAKE_PUBLICATION = (
    "DROP PUBLICATION walferry; CREATE PUBLICATION walferry FOR TABLE outbox"
    " WITH (publish = 'insert', publish_via_partition_root = true)"
)

GENERATED = (
    "ALTER TABLE outbox DROP COLUMN type;"
    "ALTER TABLE outbox ADD type text GENERATED ALWAYS AS ('t') STORED"
)
# Since which version, what breaks it, what is found.
BROKEN = {
    "publication gone": (14, "DROP PUBLICATION walferry", "publication.exists"),
    "table not published": (
        14,
        "ALTER PUBLICATION walferry DROP TABLE outbox",
        "publication.covers",
    ),
    "inserts not published": (
        14,
        "ALTER PUBLICATION walferry SET (publish = 'update, delete')",
        "publication.inserts",
    ),
    "table unlogged": (
        14,
        "DROP PUBLICATION walferry; ALTER TABLE outbox SET UNLOGGED",
        "outbox.logged",
    ),
    "partitions under their own names": (
        14,
        f"""DROP TABLE outbox; {PARTITIONED}; {REMAKE_PUBLICATION};
        ALTER PUBLICATION walferry SET (publish_via_partition_root = false)""",
        "publication.via_root",
    ),
    "partitioned table not published": (
        14,
        f"DROP TABLE outbox; {PARTITIONED}",
        "publication.covers",
    ),
    "column hidden": (
        15,
        "ALTER PUBLICATION walferry SET TABLE outbox (id, aggregateid)",
        "publication.columns",
    ),
    "column hidden beside a row filter": (
        15,
        """ALTER PUBLICATION walferry
        SET TABLE outbox (id, aggregateid) WHERE (type <> 'skip')""",
        "publication.columns",
    ),
    "generated column not published": (18, GENERATED, "publication.columns"),
    "generated column behind a column list": (
        18,
        f"""{GENERATED}; ALTER PUBLICATION walferry
        SET TABLE outbox (id, aggregatetype, aggregateid, payload)""",
        "publication.columns",
    ),
}
CASES = [
    pytest.param(major, breaking, name, id=f"pg{major}-{title}")
    for title, (oldest, breaking, name) in BROKEN.items()
    for major in since(oldest)
]


@pytest.mark.parametrize(("major", "breaking", "name"), CASES)
async def test_a_broken_requirement_is_found_refused_and_mended_by_its_remedy(
    stage: Stage, breaking: str, name: str
) -> None:
    """The remedy printed is the statement that makes the next start possible."""
    assert await stage.unmet() == []

    await stage.run(breaking)

    found = await stage.finding(name)
    assert found.status is Status.FAILURE
    with pytest.raises(RequirementMissing) as refused:
        await stage.facts()
    assert refused.value.hint

    await stage.run(found.remedy)
    if "DROP PUBLICATION" in breaking and name != "publication.exists":
        await stage.run((await stage.finding("publication.exists")).remedy)
    assert await stage.unmet() == []
    await stage.facts()


async def test_the_first_failure_is_what_a_start_reports(stage: Stage) -> None:
    """What the start refuses and what the check lists is the same finding."""
    await stage.run("ALTER PUBLICATION walferry DROP TABLE outbox")
    found = await stage.finding("publication.covers")

    with pytest.raises(RequirementMissing) as refused:
        await stage.facts()

    assert str(refused.value) == found.detail
    assert refused.value.hint == found.remedy


@pytest.mark.parametrize("major", since(15))
async def test_a_row_filter_is_a_warning_and_does_not_stop_a_start(
    stage: Stage,
) -> None:
    await stage.run("ALTER PUBLICATION walferry SET TABLE outbox WHERE (type <> 'x')")

    found = await stage.finding("publication.row_filter")

    assert found.status is Status.WARNING
    await stage.facts()
    await stage.run(found.remedy.partition("or: ")[2])
    names = [each.name for each in await stage.findings()]
    assert "publication.row_filter" not in names


async def test_a_publication_that_blocks_deletes_of_the_outbox_is_a_warning(
    stage: Stage,
) -> None:
    await stage.run(
        "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey;"
        "ALTER PUBLICATION walferry SET (publish = 'insert, delete')"
    )

    found = await stage.finding("outbox.replica_identity")

    assert found.status is Status.WARNING
    await stage.run(found.remedy)
    assert (await stage.finding("outbox.replica_identity")).status is Status.OK


async def test_replica_identity_is_never_demanded(stage: Stage) -> None:
    await stage.run("ALTER TABLE outbox REPLICA IDENTITY NOTHING")

    assert (await stage.finding("outbox.replica_identity")).status is Status.OK
    assert await stage.unmet() == []


async def test_a_partition_outside_the_wal_is_named(stage: Stage) -> None:
    await stage.run(
        f"DROP TABLE outbox; {PARTITIONED}; {REMAKE_PUBLICATION};"
        "CREATE UNLOGGED TABLE outbox_b PARTITION OF outbox FOR VALUES IN ('b')"
    )

    found = await stage.finding("outbox.logged")

    assert found.status is Status.FAILURE
    assert "outbox_b" in found.detail
    await stage.run(found.remedy.partition(" or ")[0])
    assert await stage.unmet() == []


async def test_a_partition_cannot_stand_for_its_parent(stage: Stage) -> None:
    await stage.run(f"DROP TABLE outbox; {PARTITIONED}; {REMAKE_PUBLICATION}")

    found = await stage.finding("outbox.root", stage.wanted("public.outbox_a"))

    assert found.status is Status.FAILURE
    assert "public.outbox " in found.remedy


async def test_a_view_is_not_an_outbox(stage: Stage) -> None:
    await stage.run("CREATE VIEW v AS SELECT * FROM outbox")

    found = await stage.finding("outbox.exists", stage.wanted("public.v"))

    assert found.status is Status.FAILURE
    assert "a view" in found.detail


async def test_a_missing_column_is_named_with_its_near_match(stage: Stage) -> None:
    await stage.run("ALTER TABLE outbox RENAME aggregateid TO aggregate_id")

    found = await stage.finding("outbox.columns")

    assert found.status is Status.FAILURE
    assert "no column aggregateid; near match: aggregate_id" in found.detail
    renamed = stage.wanted(groups=(("id",), ("aggregateid", "aggregate_id")))
    assert await stage.unmet(renamed) == []
    await stage.facts(renamed)


@pytest.mark.parametrize("major", before(18))
async def test_a_generated_column_is_refused_where_pgoutput_leaves_it_out(
    stage: Stage,
) -> None:
    await stage.run(GENERATED)

    found = await stage.finding("outbox.columns")

    assert found.status is Status.FAILURE
    await stage.run(found.remedy.partition(" and let")[0])
    assert await stage.unmet() == []


@pytest.mark.parametrize("major", since(18))
async def test_a_virtual_column_is_never_enough(stage: Stage) -> None:
    await stage.run(
        "ALTER TABLE outbox DROP COLUMN type;"
        "ALTER TABLE outbox ADD type text GENERATED ALWAYS AS ('t') VIRTUAL;"
        "ALTER PUBLICATION walferry SET (publish_generated_columns = stored)"
    )

    assert "virtual" in (await stage.finding("outbox.columns")).detail


async def test_a_missing_slot_is_its_own_error_and_its_remedy_makes_it(
    stage: Stage,
) -> None:
    await stage.source.drop_slot()

    found = await stage.finding("slot.exists")

    assert found.status is Status.FAILURE
    with pytest.raises(SlotMissing, match=stage.source.slot):
        await stage.facts()
    await stage.run(found.remedy.partition(", or ")[2])
    await stage.facts()


async def test_a_slot_of_another_plugin_is_refused(stage: Stage) -> None:
    await stage.source.drop_slot()
    await stage.run(
        "SELECT pg_create_logical_replication_slot"
        f"('{stage.source.slot}', 'test_decoding')"
    )

    assert await stage.unmet() == ["slot.plugin"]
    with pytest.raises(RequirementMissing, match="decodes with test_decoding"):
        await stage.facts()


async def test_a_physical_slot_is_refused(stage: Stage) -> None:
    await stage.source.drop_slot()
    await stage.run(
        f"SELECT pg_create_physical_replication_slot('{stage.source.slot}')"
    )
    try:
        assert await stage.unmet() == ["slot.exists"]
        with pytest.raises(RequirementMissing, match="physical"):
            await stage.facts()
    finally:
        await stage.source.drop_slot()


async def test_a_slot_of_another_database_is_refused(stage: Stage) -> None:
    elsewhere = stage.source.database
    await stage.run(f"CREATE DATABASE {elsewhere}_2")
    stage.dsn = stage.source.server.dsn(f"{elsewhere}_2")
    try:
        assert "slot.database" in await stage.unmet()
        with pytest.raises(
            RequirementMissing, match=f"belongs to database {elsewhere}"
        ):
            await stage.facts()
    finally:
        await stage.run(f"DROP DATABASE {elsewhere}_2")


async def test_a_slot_in_use_is_a_warning_that_names_the_user(stage: Stage) -> None:
    user = await stage.stream()
    pid = user.info.backend_pid
    try:
        found = await stage.finding("slot.free")
    finally:
        await user.close()

    assert found.status is Status.WARNING
    assert str(pid) in found.detail
    assert "other-relay" in found.detail
