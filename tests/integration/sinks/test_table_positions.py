"""Positions in a table of the source database, on real servers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from cdc.errors import RequirementMissing
from cdc.finding import Status
from cdc.position import Anchor, Overlap, Sample, Unfinished, parse
from cdc.sinks import Kept, table_positions
from cdc.sinks.table_positions import TablePositions
from slots.connect import Target
from slots.errors import PermissionDenied, ServerUnavailable, SlotError
from slots.lsn import Lsn
from tests.postgres_source import connect
from tests.unit.cdc.position.positions import position
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from cdc.finding import Finding
    from cdc.local import LocalPostgres
    from tests.postgres_source import Source
    from tests.proxy import Proxy

pytestmark = pytest.mark.postgres

TABLE = "public.walferry_position"


def store_of(source: Source, **changes: Any) -> TablePositions:
    return TablePositions(Target(dsn=SecretStr(make_conninfo(source.dsn, **changes))))


def kept(number: int, *, term: int = 1, name: str = "shop") -> Kept:
    return Kept(name, term, b'{"number":%d}' % number)


def same(seen: Kept | None, wanted: Kept) -> bool:
    """Compare what documents say: a table keeps no spaces and no order of fields."""
    return (
        seen is not None
        and seen[:2] == wanted[:2]
        and orjson.loads(seen.document) == orjson.loads(wanted.document)
    )


async def found(store: TablePositions) -> Finding:
    (one,) = await store.check()
    assert bool(one.remedy) is (one.status is not Status.OK), one
    assert "\n" not in one.detail + one.remedy
    return one


@pytest.fixture(params=["15", "18"])
async def database(
    request: pytest.FixtureRequest, source_of: Callable[..., Awaitable[Source]]
) -> Source:
    return await source_of(request.param)


@pytest.fixture
async def store(database: Source) -> AsyncIterator[TablePositions]:
    async with store_of(database) as entered:
        await entered.make()
        yield entered


async def test_the_last_document_of_a_name_is_read_by_the_next_process(
    database: Source, store: TablePositions
) -> None:
    names = ["shop", 'o"ops', "größe 😀", "'; DROP TABLE x --", "%s", ""]
    assert await store.read("shop") is None
    for number, name in enumerate(names):
        await store.write(kept(0, name=name))
        await store.write(kept(number, name=name))

    async with store_of(database) as later:
        for number, name in enumerate(names):
            assert same(await later.read(name), kept(number, name=name))


async def test_no_number_of_a_document_is_rounded(store: TablePositions) -> None:
    document = {"system_id": (1 << 64) - 1, "at": 1764560000123456}
    await store.write(Kept("shop", 1, orjson.dumps(document)))

    seen = await store.read("shop")

    assert seen is not None
    assert orjson.loads(seen.document) == document


async def test_a_position_with_everything_in_it_survives_being_stored(
    store: TablePositions,
) -> None:
    """A table of JSON keeps no order, no spaces and no member twice."""
    text = "größe 😀 '\"\\\n{}%s\x01"
    wanted = position(
        (1 << 64) - 1,
        name=text,
        anchor=Anchor(Lsn(990), 740, 1_700_000_000_000_000, text),
        horizon=1 << 63,
        samples=tuple(Sample(n, n + 1, Lsn(n), 1 << 62) for n in range(24)),
        fingerprint={text: text, "b": "", "a": "1"},
        unfinished=Unfinished(run_id="r", bounds={"since": text}, began_at_ms=7),
        overlap=Overlap("739:745:740,741", Lsn(1200)),
        doubt=text,
        recovered=("dropped:", ""),
    )
    await store.write(Kept(text, wanted.term, wanted.document()))

    seen = await store.read(text)

    assert seen is not None
    assert parse(seen.document) == wanted


async def test_a_relay_that_wakes_up_late_moves_nothing(
    database: Source, store: TablePositions
) -> None:
    await store.write(kept(40, term=4))
    async with store_of(database) as later:
        await later.write(kept(50, term=5))

        await store.write(kept(41, term=4))

        assert same(await store.read("shop"), kept(50, term=5))
        await later.write(kept(51, term=5))
    assert same(await store.read("shop"), kept(51, term=5))


async def test_writes_at_the_same_moment_end_with_the_highest_term(
    database: Source, store: TablePositions
) -> None:
    stores = [store_of(database) for _ in range(8)]
    try:
        writes = [one.write(kept(n, term=n)) for n, one in enumerate(stores)]
        await asyncio.gather(*writes)
    finally:
        for one in stores:
            await one.__aexit__(None, None, None)

    assert same(await store.read("shop"), kept(7, term=7))


@pytest.mark.usefixtures("store")
async def test_a_write_is_durable_whatever_the_database_says_of_commits(
    database: Source,
) -> None:
    """A commit that may still be lost would let the slot pass what is stored."""
    await default(database, synchronous_commit="off")
    await database.execute(
        f"CREATE FUNCTION public.told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" NEW.position := jsonb_build_object("
        f"'was', current_setting('synchronous_commit')); RETURN NEW; END $$;"
        f" CREATE TRIGGER told BEFORE INSERT OR UPDATE ON {TABLE}"
        f" FOR EACH ROW EXECUTE FUNCTION public.told()"
    )

    async with store_of(database) as fresh:
        await fresh.write(kept(1))
        seen = await fresh.read("shop")

    assert seen is not None
    assert orjson.loads(seen.document) == {"was": "on"}


@pytest.mark.usefixtures("store")
async def test_a_database_for_readers_only_keeps_positions_all_the_same(
    database: Source,
) -> None:
    await default(database, default_transaction_read_only="on")

    async with store_of(database) as fresh:
        await fresh.write(kept(1))
        assert same(await fresh.read("shop"), kept(1))


@pytest.mark.usefixtures("store")
async def test_a_write_that_waits_for_another_does_not_fail_for_it(
    database: Source,
) -> None:
    """It would where transactions are serializable, and that stops a relay."""
    await default(database, default_transaction_isolation="serializable")

    async with store_of(database) as first, store_of(database) as second:
        await first.write(kept(1))
        blocker = await connect(database.dsn)
        async with blocker:
            await blocker.execute("SET default_transaction_isolation='read committed'")
            async with blocker.transaction():
                await blocker.execute(f"UPDATE {TABLE} SET stored_at = now()")
                writing = asyncio.create_task(second.write(kept(2, term=2)))
                await eventually(lambda: waits_for_a_lock(database))
        await writing

        assert same(await first.read("shop"), kept(2, term=2))


@pytest.mark.usefixtures("store")
async def test_a_locked_table_is_given_up_by_the_server_itself(
    database: Source,
    proxy: Callable[..., Awaitable[Proxy]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each attempt leaves a session that waits, until no more can be had."""
    between = await proxy(*database.host_and_port)
    shorter = table_positions._SETTINGS.replace("8s", "400ms")
    monkeypatch.setattr(table_positions, "_SETTINGS", shorter)
    blocker = await connect(database.dsn)
    dsn = SecretStr(database.dsn_through(between))
    async with blocker, TablePositions(Target(dsn=dsn)) as locked:
        await locked.write(kept(1))
        async with blocker.transaction():
            await blocker.execute(f"LOCK TABLE {TABLE}")
            for asked in (locked.write(kept(2)), locked.read("shop")):
                with pytest.raises(ServerUnavailable, match=TABLE) as unavailable:
                    await asked
                assert "lock" in unavailable.value.hint
                assert not await waits_for_a_lock(database)
            assert between.accepted == 2  # one for each call, and none to try again

        await locked.write(kept(3))
        assert same(await locked.read("shop"), kept(3))


async def default(database: Source, **settings: str) -> None:
    for name, value in settings.items():
        await database.execute(
            f"ALTER DATABASE \"{database.database}\" SET {name} = '{value}'"
        )


async def waits_for_a_lock(database: Source) -> bool:
    return bool(
        await database.value(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


async def test_a_missing_table_is_named_with_the_command_that_makes_it(
    database: Source,
) -> None:
    async with store_of(database) as store:
        for asked in (store.read("shop"), store.write(kept(1))):
            with pytest.raises(RequirementMissing, match=TABLE) as missing:
                await asked
            assert "cdc init" in missing.value.hint
        one = await found(store)

    assert (one.status, one.remedy) == (Status.FAILURE, "cdc init")
    assert TABLE in one.detail


async def test_the_table_is_made_once_and_left_alone_then(database: Source) -> None:
    async with store_of(database) as store:
        assert await store.make() == [f"table {TABLE}"]
        await store.write(kept(1))

        assert await store.make() == []

        assert same(await store.read("shop"), kept(1))
        assert (await found(store)).status is Status.OK


@pytest.mark.usefixtures("store")
async def test_a_role_needs_the_table_and_nothing_else(database: Source) -> None:
    """What is missing is named as the statement that mends it, and that mends it."""
    role = f'ro"le_{database.slot}'
    quoted = role.replace('"', '""')
    await database.execute(f'CREATE ROLE "{quoted}" LOGIN REPLICATION')
    await database.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    try:
        async with store_of(database, user=role) as limited:
            one = await found(limited)
            assert one.status is Status.FAILURE
            for asked in (limited.read("shop"), limited.write(kept(1))):
                with pytest.raises(PermissionDenied) as denied:
                    await asked
                assert denied.value.hint == one.remedy

            await database.execute(one.remedy)

            await limited.write(kept(1))
            assert same(await limited.read("shop"), kept(1))
            assert (await found(limited)).status is Status.OK
            assert await limited.make() == []
    finally:
        await database.execute(f'DROP OWNED BY "{quoted}"; DROP ROLE "{quoted}"')


async def test_who_may_not_make_the_table_is_told_who_may(database: Source) -> None:
    role = f"role_{database.slot}"
    await database.execute(f'CREATE ROLE "{role}" LOGIN')
    await database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        async with store_of(database, user=role) as limited:
            with pytest.raises(PermissionDenied) as denied:
                await limited.make()
    finally:
        await database.execute(f'DROP ROLE "{role}"')

    assert "cdc init" in denied.value.hint


async def test_a_table_of_somebody_elses_is_no_place_for_positions(
    database: Source,
) -> None:
    await database.execute(f"CREATE TABLE {TABLE} (name text, place text)")

    async with store_of(database) as store:
        with pytest.raises(SlotError):
            await store.read("shop")
        assert (await found(store)).status is Status.FAILURE


async def test_a_table_without_the_key_or_with_other_columns_is_found_beforehand(
    database: Source,
) -> None:
    """Reading would work, and the first write would not."""
    columns = "name text, term bigint, position jsonb, stored_at timestamptz"
    async with store_of(database) as store:
        for made in (columns, f"{columns} PRIMARY KEY", "name text PRIMARY KEY"):
            await database.execute(f"CREATE TABLE {TABLE} ({made})")

            one = await found(store)

            assert (one.status, TABLE in one.detail) == (Status.FAILURE, True)
            await database.execute(f"DROP TABLE {TABLE}")


@pytest.mark.usefixtures("store")
async def test_a_table_that_a_crash_would_empty_is_found_and_mended(
    database: Source,
) -> None:
    await database.execute(f"ALTER TABLE {TABLE} SET UNLOGGED")
    async with store_of(database) as store:
        one = await found(store)
        assert (one.status, "unlogged" in one.detail) == (Status.FAILURE, True)

        await database.execute(one.remedy)

        assert (await found(store)).status is Status.OK


@pytest.mark.usefixtures("store")
async def test_a_table_whose_rows_are_hidden_from_us_is_found_and_mended(
    database: Source,
) -> None:
    role = f"role_{database.slot}"
    await database.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    await database.execute(f'CREATE ROLE "{role}" LOGIN')
    try:
        async with store_of(database, user=role) as limited:
            await database.execute((await found(limited)).remedy)

            one = await found(limited)
            assert (one.status, "ROW" in one.remedy) == (Status.FAILURE, True)
            await database.execute(one.remedy)

            assert (await found(limited)).status is Status.OK
    finally:
        await database.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.usefixtures("store")
async def test_a_check_writes_nothing(database: Source) -> None:
    async with store_of(database) as store:
        assert (await found(store)).status is Status.OK

    assert await database.value(f"SELECT count(*) FROM {TABLE}") == 0


async def test_who_makes_the_table_just_after_somebody_else_does_not_fail(
    database: Source,
) -> None:
    """IF NOT EXISTS sees no table, waits for the other one, and is refused."""
    other = await connect(database.dsn)
    async with other, store_of(database) as store:
        async with other.transaction():
            await other.execute(
                f"CREATE TABLE {TABLE} (name text PRIMARY KEY, term bigint,"
                " position jsonb, stored_at timestamptz)"
            )
            making = asyncio.create_task(store.make())
            await eventually(lambda: waits_for_a_lock(database))
        await making

        await store.write(kept(1))


async def test_a_schema_that_is_not_there_is_named_with_its_statement(
    database: Source,
) -> None:
    target = Target(dsn=SecretStr(database.dsn))
    async with TablePositions(target, 'no "where"') as store:
        with pytest.raises(RequirementMissing, match="schema no") as missing:
            await store.make()

        await database.execute(missing.value.hint)

        assert await store.make() == ['table no "where".walferry_position']
        await store.write(kept(1))
        assert same(await store.read("shop"), kept(1))


async def test_a_standby_keeps_nothing_and_is_waited_for(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    """While roles are changing, the address may lead to the wrong one for a while."""
    server = private_postgres("18")
    database = await source_of("18", server=server)
    async with store_of(database) as primary:
        await primary.make()
        await primary.write(kept(1))
        with await asyncio.to_thread(server.standby) as standby:
            dsn = SecretStr(standby.dsn(database.database))
            async with TablePositions(Target(dsn=dsn)) as store:
                assert same(await store.read("shop"), kept(1))
                with pytest.raises(ServerUnavailable, match="standby"):
                    await store.write(kept(2))

                await asyncio.to_thread(standby.promote)

                await store.write(kept(3))
                assert same(await store.read("shop"), kept(3))


async def test_a_connection_that_was_lost_is_opened_again_by_the_next_call(
    database: Source, store: TablePositions
) -> None:
    await store.write(kept(1))
    for number in (2, 3):
        await database.fetch(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        if number == 2:
            await store.write(kept(2))
        else:
            assert same(await store.read("shop"), kept(2))


async def test_a_server_that_restarts_between_two_writes_is_met_again(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("18")
    database = await source_of("18", server=server)
    async with store_of(database) as store:
        await store.make()
        await store.write(kept(1))

        await asyncio.to_thread(server.restart, "immediate")
        await store.write(kept(2))
        assert same(await store.read("shop"), kept(2))

        await asyncio.to_thread(server.stop)
        with pytest.raises(ServerUnavailable):
            await store.write(kept(3))
        assert (await found(store)).status is Status.FAILURE
        await asyncio.to_thread(server.start)
        await store.write(kept(4))
        assert same(await store.read("shop"), kept(4))


async def test_a_silent_server_is_given_up_in_bounded_time(
    database: Source,
    store: TablePositions,
    proxy: Callable[..., Awaitable[Proxy]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the connection with it: the next call begins with another one."""
    del store  # has made the table
    monkeypatch.setattr("cdc.sinks.table_positions._LIMIT_S", 1.0)
    info = (await database.open()).info
    between = await proxy(info.host, info.port)
    async with store_of(database, host=between.host, port=between.port) as silent:
        await silent.write(kept(1))
        between.stall()

        began = time.monotonic()
        with pytest.raises(ServerUnavailable):
            await silent.write(kept(2))
        assert time.monotonic() - began < 15

        between.resume()
        await between.drop_connections()
        await silent.write(kept(3))
        assert same(await silent.read("shop"), kept(3))
