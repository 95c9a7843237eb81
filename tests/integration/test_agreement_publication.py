"""A publication that left rows out for a while is noticed; one that grew is not.

The rows committed while a table is outside never arrive, no server says so, and its
keepalives move on past them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.file_relay import FileRelay, accepted_gap
from tests.relay_process import RelayProcess
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.postgres_source import Source

TAKEN_OUT = ["ALTER PUBLICATION walferry DROP TABLE outbox"]
PUT_BACK = ["ALTER PUBLICATION walferry ADD TABLE outbox"]
DROPPED = ["DROP PUBLICATION walferry"]
MADE = ["CREATE PUBLICATION walferry FOR TABLE outbox WITH (publish = 'insert')"]
SILENCED = ["ALTER PUBLICATION walferry SET (publish = 'update')"]
HEARD = ["ALTER PUBLICATION walferry SET (publish = 'insert')"]
FILTERED = ["ALTER PUBLICATION walferry SET TABLE outbox WHERE (aggregateid = 'x')"]
UNFILTERED = ["ALTER PUBLICATION walferry SET TABLE outbox"]
GAPS = {
    "table taken out and put back": (TAKEN_OUT, PUT_BACK),
    "publication made again": (DROPPED, MADE),
    "inserts switched off and on": (SILENCED, HEARD),
    "row filter set and removed": (FILTERED, UNFILTERED),
}
INSERT = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type)"
    " VALUES ('order', 'between', 'created')"
)


@pytest.fixture(params=["15", "18"])
async def shop(
    request: pytest.FixtureRequest,
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
) -> FileRelay:
    """A relay with a publication that has everything."""
    source = await source_of(request.param, "pgoutput")
    await source.create_outbox()
    return FileRelay(source=source, path=tmp_path / "events")


async def execute(source: Source, *statements: str) -> None:
    for statement in statements:
        await source.execute(statement)


async def gap_accepted(shop: FileRelay) -> None:
    """It is refused, and then taken with the position that the relay names."""
    stderr = await shop.refuses()
    assert "changed in the publication, or taken out and put back" in stderr
    code, _out, err = await shop.cdc("adopt", "--accept-gap", accepted_gap(stderr))
    assert code == 0, err


@pytest.mark.parametrize(
    "gap", [gap for gap in GAPS if gap != "publication made again"]
)
async def test_a_gap_in_the_publication_is_noticed_at_the_next_start(
    shop: FileRelay, gap: str
) -> None:
    """Nothing is published, not even what would arrive; a decision goes on from it."""
    leave, come_back = GAPS[gap]
    await shop.run_once()
    await execute(shop.source, *leave)
    await shop.source.insert_event(key="between")
    await execute(shop.source, *come_back)
    after = await shop.source.insert_event(key="after")

    await gap_accepted(shop)

    async with shop.process() as relay:
        await relay.streaming()
        await shop.has(after)
        assert await relay.stop() == 0


async def test_rows_of_a_time_without_the_publication_are_named_and_can_be_passed(
    shop: FileRelay,
) -> None:
    """The server cannot decode them, however well the publication is made again."""
    await shop.run_once()
    await execute(shop.source, *DROPPED, INSERT, *MADE)
    behind = await shop.source.value("SELECT pg_current_wal_lsn()::text")
    await gap_accepted(shop)
    async with shop.process(with_http=False) as relay:
        assert await relay.exited() == 3
    assert "with a position behind them: cdc adopt --accept-gap LSN" in relay.stderr

    code, _out, err = await shop.cdc("adopt", "--accept-gap", behind)

    assert code == 0, err
    await shop.run_once()


@pytest.mark.parametrize("gap", GAPS)
async def test_nothing_is_published_behind_a_gap_under_a_running_relay(
    shop: FileRelay, gap: str
) -> None:
    """What was committed before it may still arrive, and nothing of what came after.

    A server that finds no publication for a row may say so first, which is exit 3; the
    next start tells the rest.
    """
    leave, come_back = GAPS[gap]
    async with shop.process(with_http=False, CDC_STATUS_INTERVAL_S="10") as relay:
        await relay.logged(event="state", state="streaming")
        first = await shop.source.insert_event(key="first")
        await shop.has(first)
        before = await shop.source.insert_event(key="before")
        await execute(shop.source, *leave, INSERT, *come_back)
        await shop.source.insert_event(key="after")
        await shop.source.insert_event(key="later")

        code = await relay.exited()

    if leave is not DROPPED:
        assert code == 4
        assert "changed in the publication, or taken out and put back" in relay.stderr
    assert code in (3, 4)
    assert shop.ids() in ([first], [first, before])
    # Nobody has decided: it says so again.
    assert "taken out and put back" in await shop.refuses()


async def test_a_gap_that_lies_inside_one_transaction_is_noticed_too(
    shop: FileRelay,
) -> None:
    async with shop.process(with_http=False, CDC_STATUS_INTERVAL_S="10") as relay:
        await relay.logged(event="state", state="streaming")
        first = await shop.source.insert_event(key="first")
        await shop.has(first)
        connection = await shop.source.open()
        async with connection.transaction():
            await execute(shop.source, *TAKEN_OUT, INSERT, *PUT_BACK)
        await shop.source.insert_event(key="after")

        assert await relay.exited() == 4

    assert shop.ids() == [first]


async def test_a_gap_with_no_event_behind_it_is_noticed_by_a_running_relay(
    shop: FileRelay,
) -> None:
    """The stream says nothing at all of it: the catalog is looked at now and then."""
    async with shop.process(with_http=False, CDC_STATUS_INTERVAL_S="10") as relay:
        await relay.logged(event="state", state="streaming")
        await shop.has(await shop.source.insert_event(key="first"))
        await execute(shop.source, *TAKEN_OUT, INSERT, *PUT_BACK)

        assert await relay.exited() == 4

    assert "taken out and put back" in relay.stderr


async def test_a_table_that_is_outside_the_publication_ends_the_relay(
    shop: FileRelay,
) -> None:
    """It is not waited for: a requirement is not met any more."""
    async with shop.process(with_http=False) as relay:
        await relay.logged(event="state", state="streaming")
        await execute(shop.source, *TAKEN_OUT)
        await shop.source.insert_event(key="between")

        assert await relay.exited() == 3

    await execute(shop.source, *PUT_BACK)
    assert "taken out and put back" in await shop.refuses()


@pytest.mark.parametrize(
    "gap", ["table taken out and put back", "publication made again"]
)
async def test_a_start_in_the_middle_of_a_gap_does_not_hide_it(
    shop: FileRelay, gap: str
) -> None:
    """It is refused, as often as it is tried; what it saw is not how it ought to be."""
    leave, come_back = GAPS[gap]
    await shop.run_once()
    await execute(shop.source, *leave)
    for _ in range(2):
        async with shop.process(with_http=False) as relay:
            assert await relay.exited() == 3
    await execute(shop.source, INSERT, *come_back)

    assert "taken out and put back" in await shop.refuses()


HARMLESS = {
    "another table is published": [
        "CREATE TABLE other (i int PRIMARY KEY)",
        "ALTER PUBLICATION walferry ADD TABLE other",
        "INSERT INTO other VALUES (1)",
    ],
    "another table is taken out": [
        "CREATE TABLE passing (i int PRIMARY KEY)",
        "ALTER PUBLICATION walferry ADD TABLE passing",
        "DROP TABLE passing",
    ],
    "the outbox is analysed and vacuumed": [
        "ANALYZE outbox",
        "VACUUM FREEZE outbox",
        "VACUUM FULL outbox",
    ],
    "the outbox gets a column": ["ALTER TABLE outbox ADD COLUMN tenant text"],
    "the outbox gets an index and a right": [
        "CREATE INDEX ON outbox (created_at)",
        "GRANT SELECT ON outbox TO PUBLIC",
    ],
    "the catalog is vacuumed": [
        "VACUUM FREEZE pg_publication",
        "VACUUM FULL pg_publication",
        "VACUUM FULL pg_publication_rel",
    ],
    "another publication comes and goes": [
        "CREATE PUBLICATION other_one FOR TABLE outbox",
        "DROP PUBLICATION other_one",
    ],
}


async def test_what_leaves_no_row_out_is_no_alarm_under_a_running_relay(
    shop: FileRelay,
) -> None:
    async with shop.process() as relay:
        await relay.streaming()
        sessions = await relay.metric("walferry_sessions_started_total")
        ids = []
        for statements in HARMLESS.values():
            await execute(shop.source, *statements)
            ids.append(await shop.source.insert_event())
            await shop.has(*ids)
        stored = shop.position()

        def has_sampled() -> bool:
            return shop.position().samples[-1].lsn > stored.end_lsn

        async def looked_again() -> bool:
            await shop.source.insert_event()
            return has_sampled()

        await eventually(looked_again, 20.0, what="the catalog was looked at since")
        assert await relay.metric("walferry_sessions_started_total") == sessions
        assert await relay.stop() == 0
    assert len(shop.ids()) == len(set(shop.ids()))


async def test_what_leaves_no_row_out_is_no_alarm_at_the_next_start(
    shop: FileRelay,
) -> None:
    await shop.run_once()
    for statements in HARMLESS.values():
        await execute(shop.source, *statements)
    missed = await shop.source.insert_event()
    async with shop.process() as relay:
        await relay.streaming()
        await shop.has(missed)
        assert await relay.stop() == 0


async def test_a_second_outbox_table_is_no_alarm(shop: FileRelay) -> None:
    """It is made by `cdc init`, and asked for from the next start on."""
    first = await shop.run_once()
    both = {"CDC_OUTBOX__TABLES": "public.outbox,public.returns"}
    table = "CREATE TABLE returns (LIKE outbox INCLUDING ALL)"
    await execute(shop.source, table)

    code, _out, err = await shop.cdc("init", "--yes", **both)

    assert code == 0, err
    async with RelayProcess(shop.settings(**both)) as relay:
        await relay.streaming()
        await execute(shop.source, INSERT.replace("outbox", "returns"))
        await shop.has(await shop.source.insert_event())
        assert await relay.stop() == 0
    assert [event["key"] for event in shop.events()] == ["1"] * 3 + ["between", "1"]
    assert shop.ids()[:3] == first
    # It goes on as it is: with both, and with one.
    await shop.run_once(1, **both)
    await shop.run_once(1)
