"""What a user can get wrong: one line with the remedy, and nothing is consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.relay_process import RelayProcess, cdc, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source


@pytest.fixture
async def outbox(source_of: Callable[..., Awaitable[Source]]) -> Source:
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    return source


async def refused(
    source: Source, code: int, words: str, **settings: str
) -> dict[str, Any]:
    """Run ``cdc run``, expect a refusal, and return what it said."""
    before = await source.slot_row()
    full = environment(source, CDC_SINK="jsonl", CDC_STARTUP_TIMEOUT_S="1") | settings
    async with RelayProcess(full, with_http=False) as relay:
        assert await relay.exited() == code, relay.stderr
    assert relay.stdout == b""
    assert "Traceback" not in relay.stderr
    after = await source.slot_row()
    if before is not None and after is not None:
        assert after["confirmed_flush_lsn"] == before["confirmed_flush_lsn"]
    said = [entry for entry in relay.log if entry["event"] == "giving_up"]
    if said:
        (line,) = said
        assert line["exit_code"] == code
        assert words in line["reason"], line
        assert "\n" not in line["reason"]
        return line
    # Beside log lines, which are JSON here, there is one for the user.
    (only,) = [row for row in relay.stderr.splitlines() if not row.startswith("{")]
    assert only.startswith("cdc: ")
    assert words in only
    return {"reason": only, "remedy": only}


async def test_a_dsn_that_is_none(outbox: Source) -> None:
    await refused(outbox, 2, "DSN", CDC_POSTGRES__DSN="user@host")


async def test_an_unknown_setting(outbox: Source) -> None:
    await refused(outbox, 2, "did you mean CDC_SLOT__NAME", CDC_SLOT__NAMES="x")


async def test_an_illegal_constant_topic(outbox: Source) -> None:
    await refused(outbox, 2, "no legal topic", CDC_OUTBOX__TOPIC="bad topic/!")


async def test_no_broker_named(outbox: Source) -> None:
    await refused(outbox, 2, "CDC_KAFKA__BOOTSTRAP_SERVERS", CDC_SINK="kafka")


async def test_a_sink_that_cannot_be_loaded(outbox: Source) -> None:
    await refused(outbox, 2, "nowhere:sink", CDC_SINK="nowhere:sink")


async def test_nobody_at_the_address(outbox: Source) -> None:
    dsn = make_conninfo(outbox.dsn, port="1")
    line = await refused(outbox, 3, ":1/", CDC_POSTGRES__DSN=dsn)
    assert line["remedy"]


async def test_a_database_that_is_missing(outbox: Source) -> None:
    dsn = make_conninfo(outbox.dsn, dbname="nosuch")
    await refused(outbox, 3, "nosuch", CDC_POSTGRES__DSN=dsn)


async def test_a_role_that_is_missing(outbox: Source) -> None:
    dsn = make_conninfo(outbox.dsn, user="nobody_here")
    await refused(outbox, 3, "nobody_here", CDC_POSTGRES__DSN=dsn)


async def test_a_role_that_may_not_replicate(outbox: Source) -> None:
    role = f"plain_{outbox.slot}"
    await outbox.execute(f"CREATE ROLE {role} LOGIN")
    dsn = make_conninfo(outbox.dsn, user=role)
    line = await refused(outbox, 3, "", CDC_POSTGRES__DSN=dsn)
    assert "REPLICATION" in line["remedy"]
    await outbox.execute(f"DROP ROLE {role}")


async def test_a_table_that_is_missing(outbox: Source) -> None:
    await refused(outbox, 3, "public.outboxes", CDC_OUTBOX__TABLES="public.outboxes")


async def test_a_table_in_the_wrong_case(outbox: Source) -> None:
    line = await refused(outbox, 3, "Outbox", CDC_OUTBOX__TABLES="public.Outbox")
    assert "public.outbox" in line["reason"] + line["remedy"]


async def test_a_column_that_is_missing(outbox: Source) -> None:
    line = await refused(
        outbox, 3, "aggregate_id", CDC_OUTBOX__COLUMNS__KEY="aggregate_id"
    )
    assert "aggregateid" in line["reason"] + line["remedy"]


async def test_a_publication_that_is_missing(outbox: Source) -> None:
    await refused(outbox, 3, "nosuch", CDC_SLOT__PUBLICATION="nosuch")


async def test_a_publication_without_the_table(outbox: Source) -> None:
    await outbox.execute("ALTER PUBLICATION walferry DROP TABLE outbox")
    line = await refused(outbox, 3, "public.outbox")
    assert "ALTER PUBLICATION" in line["remedy"]


async def test_a_slot_that_is_missing_at_the_start(outbox: Source) -> None:
    line = await refused(outbox, 3, "nosuch", CDC_SLOT__NAME="nosuch")
    assert "cdc init" in line["remedy"]


async def test_a_slot_of_the_other_plugin(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("15", "wal2json")
    await source.create_outbox()
    await refused(source, 3, "wal2json", CDC_SLOT__PLUGIN="pgoutput")


async def test_a_slot_of_another_database(
    outbox: Source, source_of: Callable[..., Awaitable[Source]]
) -> None:
    other = await source_of("18", "pgoutput")
    await other.create_outbox()
    await refused(other, 3, outbox.database, CDC_SLOT__NAME=outbox.slot)


async def test_a_broker_that_is_absent(outbox: Source) -> None:
    await refused(
        outbox,
        3,
        "127.0.0.1:1",
        CDC_SINK="kafka",
        CDC_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
    )


async def test_a_constant_topic_that_is_missing(outbox: Source, kafka: Any) -> None:
    await refused(
        outbox,
        3,
        "nosuchtopic",
        CDC_SINK="kafka",
        CDC_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        CDC_OUTBOX__TOPIC="nosuchtopic",
    )


async def test_an_output_folder_that_is_missing(outbox: Source) -> None:
    await refused(outbox, 2, "/no/such", CDC_JSONL__PATH="/no/such/folder/events")


async def test_a_server_without_logical_decoding(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("18", settings={"wal_level": "replica"})
    source = await source_of("18", "pgoutput", server=server)
    line = await refused(source, 3, "wal_level")
    assert "wal_level" in line["remedy"]


async def test_a_plugin_that_the_server_does_not_allow(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("15")
    source = await source_of("15", "wal2json", server=server)
    await source.create_outbox()
    await source.execute(
        "ALTER SYSTEM SET output_plugin_libraries = pgoutput, test_decoding"
    )
    await source.execute("SELECT pg_reload_conf()")

    async def is_taken() -> bool:
        value = await source.value("SHOW output_plugin_libraries")
        return "wal2json" not in str(value)

    await eventually(is_taken, 10.0)
    line = await refused(source, 3, "wal2json")
    remedy = "output_plugin_libraries = pgoutput, test_decoding, wal2json"
    assert remedy in line["remedy"]


async def test_a_port_that_is_taken(outbox: Source, kafka: Any) -> None:
    await refused(outbox, 3, "", CDC_HTTP__LISTEN=kafka.bootstrap_servers)


async def test_a_lost_slot_stops_with_its_own_code_or_parks(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    """With HTTP on it stays alive, not ready, so that the metrics can be read."""
    server = private_postgres(
        "18", wal_segment_mb=1, settings={"max_slot_wal_keep_size": "2MB"}
    )
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()

    async def is_lost() -> bool:
        await source.fetch(
            "SELECT pg_logical_emit_message(false, 'junk', repeat('x', 1000000))"
            " FROM generate_series(1, 5)"
        )
        await source.fetch("SELECT pg_switch_wal()")
        await source.execute("CHECKPOINT")
        row = await source.slot_row()
        return row is not None and row["wal_status"] == "lost"

    await eventually(is_lost, 30.0, what="the slot is lost")
    line = await refused(source, 4, "lost")
    assert line["remedy"]

    async with RelayProcess(environment(source, CDC_SINK="jsonl")) as parked:

        async def is_parked() -> bool:
            return (await parked.get("/readyz"))[1].startswith("slot_lost")

        await eventually(is_parked, 20.0, what="it parks")
        assert (await parked.get("/livez"))[0] == 200
        assert await parked.metric("walferry_state", state="slot_lost") == 1.0
        assert (await parked.status())["state"] == "slot_lost"
        assert parked.is_running
        assert await parked.stop() == 4


async def test_check_says_each_thing_and_fails_with_one_code(outbox: Source) -> None:
    settings = environment(outbox, CDC_SINK="jsonl", CDC_OUTBOX__COLUMNS__KEY="agg")

    code, out, err = await cdc("check", settings=settings)

    assert code == 3
    assert err == ""
    (line,) = [row for row in out.splitlines() if row.startswith("failure")]
    assert "agg" in line
    assert "->" in line
