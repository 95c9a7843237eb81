"""What the server's own settings, limits and addresses do to a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.errors import RequirementMissing
from cdc.finding import Status
from cdc.requirements import checking, init
from slots.errors import SlotLost
from tests.integration.requirements.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

    MakeSource = Callable[..., Awaitable[Source]]
    MakePostgres = Callable[..., LocalPostgres]
    MakeRole = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.postgres

UNTIL_RESTART = "; then restart"


async def test_wal_level_replica_is_refused_before_anything_is_made(
    private_postgres: MakePostgres, source_of: MakeSource
) -> None:
    server = await asyncio.to_thread(
        private_postgres, "18", settings={"wal_level": "replica"}
    )
    source = await source_of("18", "pgoutput", server=server)
    stage = Stage(source)

    found = await stage.finding("postgres.wal_level")
    assert found.status is Status.FAILURE
    with pytest.raises(RequirementMissing, match="wal_level is replica"):
        await stage.facts()
    with pytest.raises(RequirementMissing, match="wal_level is replica"):
        await init(stage.target, stage.wanted())
    assert await source.value("SELECT to_regclass('public.outbox')") is None

    await stage.run(found.remedy.partition(UNTIL_RESTART)[0])
    await source.disconnect()
    await asyncio.to_thread(server.restart)
    await init(stage.target, stage.wanted())
    assert await stage.unmet() == []


async def test_limits_that_are_used_up_are_said_with_the_way_to_raise_them(
    private_postgres: MakePostgres, source_of: MakeSource
) -> None:
    server = await asyncio.to_thread(
        private_postgres,
        "18",
        settings={"max_replication_slots": "1", "max_wal_senders": "1"},
    )
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    stage = Stage(source)
    other = stage.wanted(slot="another")

    assert "postgres.max_replication_slots" in await stage.unmet(other)
    with pytest.raises(RequirementMissing, match="no replication slot is left") as full:
        await init(stage.target, other)
    assert "max_replication_slots = 11" in full.value.hint
    loads = await stage.finding("plugin.loads", other)
    assert loads.status is Status.WARNING
    assert "not known" in loads.detail

    user = await stage.stream()
    try:
        found = await stage.finding("postgres.replication")
        assert "max_wal_senders = 11" in found.remedy
        assert "postgres.max_wal_senders" in await stage.unmet(other)
        assert "postgres.max_wal_senders" not in await stage.unmet()
    finally:
        await user.close()


async def test_prepared_transactions_and_hurtful_settings_are_named(
    private_postgres: MakePostgres, source_of: MakeSource
) -> None:
    server = await asyncio.to_thread(
        private_postgres,
        "18",
        settings={
            "max_prepared_transactions": "5",
            "wal_sender_timeout": "0",
            "idle_replication_slot_timeout": "2min",
        },
    )
    source = await source_of("18", "pgoutput", server=server)
    await source.execute("CREATE TABLE t (a int)")
    async with await psycopg.AsyncConnection.connect(source.dsn) as writer:
        await writer.execute("INSERT INTO t VALUES (1)")
        await writer.execute("PREPARE TRANSACTION 'it''s forgotten'")
    stage = Stage(source)

    with pytest.raises(RequirementMissing) as gave_up:
        await init(stage.target, stage.wanted(), slot_timeout_s=0.3)
    assert 'prepared transaction "it\'s forgotten"' in str(gave_up.value)

    await stage.run("ROLLBACK PREPARED 'it''s forgotten'")
    await init(stage.target, stage.wanted())
    hurtful = [
        "postgres.max_slot_wal_keep_size",
        "postgres.idle_replication_slot_timeout",
        "postgres.wal_sender_timeout",
    ]
    findings = {each.name: each for each in await stage.findings()}
    for name in hurtful:
        assert findings[name].status is Status.WARNING
        await stage.run(findings[name].remedy)
    for name in hurtful:
        assert (await stage.finding(name)).status is Status.OK
    await stage.facts()


async def test_a_lost_slot_is_an_error_of_its_own(
    private_postgres: MakePostgres, source_of: MakeSource, major: str
) -> None:
    """The start stops with what was lost and since where; the slot stays."""
    server = await asyncio.to_thread(
        private_postgres,
        major,
        wal_segment_mb=1,
        settings={
            "max_slot_wal_keep_size": "1MB",
            "min_wal_size": "2MB",
            "max_wal_size": "2MB",
        },
    )
    source = await source_of(major, "pgoutput", server=server)
    await source.create_outbox()
    stage = Stage(source)
    confirmed = await source.value(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
    )
    await source.execute("CREATE TABLE noise (a text)")
    for _ in range(8):
        await source.execute("INSERT INTO noise VALUES ('x')")
        await source.fetch("SELECT pg_switch_wal()::text")
    await source.execute("CHECKPOINT")

    found = await stage.finding("slot.wal_status")
    assert found.status is Status.FAILURE
    assert confirmed in found.detail
    with pytest.raises(SlotLost, match="is lost"):
        await stage.facts()
    with pytest.raises(RequirementMissing, match="is lost"):
        await init(stage.target, stage.wanted())
    assert await source.slot_row() is not None


@pytest.mark.parametrize("broken", ["pgoutput, test_decoding", "'pgoutput, wal2json'"])
async def test_a_plugin_that_is_not_allowed_is_found_and_its_remedy_allows_it(
    private_postgres: MakePostgres, source_of: MakeSource, broken: str
) -> None:
    """A superuser reads it from the setting, a plain role learns it by trying."""
    server = await asyncio.to_thread(private_postgres, "15")
    source = await source_of("15", "wal2json", server=server)
    await source.create_outbox()
    stage = Stage(source)
    assert await stage.unmet() == []
    await stage.run(
        f"CREATE ROLE plain LOGIN REPLICATION PASSWORD 'not-a-secret';"
        f"ALTER SYSTEM SET output_plugin_libraries = {broken}; SELECT pg_reload_conf()"
    )

    assert await stage.unmet() == ["plugin.allowed"]
    with pytest.raises(RequirementMissing, match="may not load wal2json") as refused:
        await stage.facts()

    stage.act_as("plain")
    assert await stage.unmet() == ["plugin.allowed"]
    with pytest.raises(RequirementMissing, match="may not load wal2json") as denied:
        await init(stage.target, stage.wanted(slot="another"))
    assert denied.value.hint == (
        "ALTER SYSTEM SET output_plugin_libraries = pgoutput, test_decoding, wal2json;"
        " SELECT pg_reload_conf();"
    )
    assert denied.value.hint == refused.value.hint

    await stage.run(denied.value.hint)
    assert await stage.unmet() == []


async def test_a_plugin_that_is_not_installed_is_found_by_trying(
    stage: Stage, major: str
) -> None:
    if major == "15":  # has wal2json
        wanted = stage.wanted(plugin="decoderbufs", slot="another")
        name = "plugin.allowed"
    else:
        wanted = stage.wanted(plugin="wal2json", slot="another")
        name = "plugin.loads"

    found = await stage.finding(name, wanted)

    assert found.status is Status.FAILURE


@pytest.mark.parametrize(
    ("encoding", "plugin", "is_refused"),
    [
        ("SQL_ASCII", "pgoutput", True),
        ("SQL_ASCII", "wal2json", True),
        ("LATIN1", "wal2json", True),
        ("EUC_JP", "wal2json", True),
        ("LATIN1", "pgoutput", False),
        ("EUC_JP", "pgoutput", False),
    ],
)
async def test_an_encoding_that_would_be_garbled_is_refused(
    source_of: MakeSource, encoding: str, plugin: str, *, is_refused: bool
) -> None:
    source = await source_of("15", plugin)
    database = f"{source.database}_e"
    await source.execute(
        f"CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C'"
        " TEMPLATE template0"
    )
    stage = Stage(source)
    stage.dsn = source.server.dsn(database)
    try:
        found = await stage.finding("postgres.encoding")
        assert (found.status is Status.FAILURE) == is_refused
        assert encoding in found.detail
        if is_refused:
            with pytest.raises(RequirementMissing, match=encoding):
                await stage.facts()
            with pytest.raises(RequirementMissing, match=encoding):
                await init(stage.target, stage.wanted())
        else:
            await init(stage.target, stage.wanted())
            assert await stage.unmet() == []
            assert (await stage.facts()).server_encoding == encoding
            await stage.run(
                f"SELECT pg_drop_replication_slot('{source.slot}')", stage.dsn
            )
    finally:
        await source.execute(f"DROP DATABASE {database}")


@pytest.mark.parametrize("major", ["15", "18"])  # those that have pg_basebackup
async def test_a_standby_is_refused_before_16_and_a_warning_from_then_on(
    private_postgres: MakePostgres, source_of: MakeSource, major: str
) -> None:
    """Once promoted it is as good as any, and its new timeline is known at once."""
    primary = await asyncio.to_thread(private_postgres, major)
    source = await source_of(major, "pgoutput", server=primary)
    await source.create_outbox()
    standby = await asyncio.to_thread(primary.standby)
    stage = Stage(source)
    stage.dsn = standby.dsn(source.database)
    try:
        await asyncio.to_thread(standby.start)
        found = await stage.finding("postgres.primary")
        await asyncio.to_thread(standby.promote)
        done = await init(stage.target, stage.wanted())
        facts = await stage.facts()
    finally:
        await asyncio.to_thread(standby.close)

    expected = Status.FAILURE if int(major) < 16 else Status.WARNING
    assert found.status is expected
    assert "target_session_attrs=read-write" in found.remedy
    assert done == [f"slot {source.slot} created (pgoutput)"]
    assert facts.timeline == 2


async def test_a_server_that_is_not_there_is_one_finding(stage: Stage) -> None:
    stage.dsn = make_conninfo(stage.source.dsn, port=1)

    findings = await stage.findings()

    assert [each.name for each in findings] == ["postgres.connection"]
    assert findings[0].status is Status.FAILURE
    assert findings[0].remedy
    assert "\n" not in findings[0].detail


async def test_a_server_that_does_not_answer_ends_the_check_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before stands; the rest is one finding."""
    monkeypatch.setattr(checking, "_LIMIT_S", 1.0)
    async with await psycopg.AsyncConnection.connect(stage.source.dsn) as holder:
        await holder.execute("LOCK TABLE pg_catalog.pg_publication")

        findings = await stage.findings()

        await holder.rollback()
    assert findings[0].status is Status.OK
    assert findings[-1].name == "postgres.connection"
    assert findings[-1].status is Status.FAILURE
    assert "within 1 s" in findings[-1].detail


async def test_open_write_transactions_do_not_hold_up_the_plugins_trial(
    stage: Stage,
) -> None:
    async with await psycopg.AsyncConnection.connect(stage.source.dsn) as writer:
        await writer.execute("SELECT pg_current_xact_id()")

        found = await stage.finding("plugin.loads")

        await writer.rollback()
    assert found.status is Status.OK
    assert "open" in found.detail


async def test_a_check_leaves_nothing_behind(stage: Stage) -> None:
    query = "SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots"
    before = await stage.source.fetch(f"{query} ORDER BY 1")

    await stage.findings()

    assert await stage.source.fetch(f"{query} ORDER BY 1") == before
