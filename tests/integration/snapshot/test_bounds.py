"""Bounds leave out nothing that could be meant, and say so when they cannot be used."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from cdc.errors import RequirementMissing, SettingsError
from cdc.outbox import Columns, TableName
from cdc.snapshot import Bounds, Since, parse_since
from tests.in_process import relay_source
from tests.postgres_source import OUTBOX, connect
from tests.snapshot_reading import events_of, keys, opened, replayed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source

WITHOUT_TIME = OUTBOX.replace("created_at", "made_at")


async def test_a_savepoint_of_an_open_transaction_is_a_candidate_once_it_commits(
    plain: Source,
) -> None:
    """A snapshot lists no subtransactions: only its xmin is a safe horizon."""
    relay = relay_source(plain)
    await plain.insert_event("order", "old")
    async with await connect(plain.dsn) as slow:
        await slow.execute("BEGIN")
        await slow.execute("SELECT pg_current_xact_id()")
        await slow.execute("SAVEPOINT s")
        await slow.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type)"
            " VALUES ('order', 'inside', 'x')"
        )
        await plain.insert_event("order", "meanwhile")
        async with opened(relay) as snapshot:
            horizon = snapshot.xmin
            assert keys(await events_of(snapshot, relay, Bounds())) == [
                "old",
                "meanwhile",
            ]
        await slow.execute("COMMIT")
    await plain.insert_event("order", "new")

    events = await replayed(relay, Bounds(horizon=horizon))

    assert sorted(keys(events)) == ["inside", "meanwhile", "new"]


async def test_the_horizon_itself_is_a_candidate(plain: Source) -> None:
    relay = relay_source(plain)
    await plain.insert_event("order", "below")
    await plain.insert_event("order", "at")
    xids = await plain.fetch("SELECT xmin::text::int8 AS xid FROM outbox ORDER BY 1")

    events = await replayed(relay, Bounds(horizon=xids[1]["xid"]))

    assert keys(events) == ["at"]


async def test_a_prepared_transaction_is_a_candidate_once_it_commits(
    tracking: Source,
) -> None:
    relay = relay_source(tracking)
    await tracking.insert_event("order", "old")
    async with await connect(tracking.dsn) as prepared:
        await prepared.execute("BEGIN")
        await prepared.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type)"
            " VALUES ('order', 'prepared', 'x')"
        )
        await prepared.execute("PREPARE TRANSACTION 'later'")
    await tracking.insert_event("order", "meanwhile")
    async with opened(relay) as snapshot:
        horizon, xmax = snapshot.xmin, snapshot.xmax
    await tracking.execute("COMMIT PREPARED 'later'")

    assert horizon < xmax
    assert keys(await replayed(relay, Bounds(horizon=horizon))) == [
        "meanwhile",
        "prepared",
    ]
    assert await replayed(relay, Bounds(horizon=xmax)) == []


async def test_a_snapshot_shows_nothing_that_commits_after_it(plain: Source) -> None:
    relay = relay_source(plain)
    await plain.insert_event("order", "before")

    async with opened(relay) as snapshot:
        await plain.insert_event("order", "after")
        events = await events_of(snapshot, relay, Bounds())

    assert keys(events) == ["before"]


async def test_a_time_is_that_of_the_commit_where_it_is_known(tracking: Source) -> None:
    relay = relay_source(tracking)
    async with await connect(tracking.dsn) as slow:
        await slow.execute("BEGIN")
        await slow.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type)"
            " VALUES ('order', 'slow', 'x')"
        )
        await tracking.insert_event("order", "quick")
        between = await tracking.value("SELECT clock_timestamp()")
        await slow.execute("COMMIT")

    since = keys(await replayed(relay, Bounds(since=Since(between))))
    until = keys(await replayed(relay, Bounds(until=Since(between))))

    assert (since, until) == (["slow"], ["quick"])


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
async def test_otherwise_it_is_that_of_a_column(plain: Source, kind: str) -> None:
    relay = relay_source(plain)
    for name in ("old", "new"):
        await plain.insert_event("order", name)
    await plain.execute(f"ALTER TABLE outbox ALTER created_at TYPE {kind}")
    await plain.execute("UPDATE outbox SET created_at = '2026-01-01 00:00:00'")
    await plain.execute(
        "UPDATE outbox SET created_at = '2026-01-02' WHERE aggregateid = 'new'"
    )

    async def keys_of(since: str | None, until: str | None) -> list[str]:
        bounds = Bounds(
            since=None if since is None else parse_since(since),
            until=None if until is None else parse_since(until),
        )
        return sorted(keys(await replayed(relay, bounds)))

    assert await keys_of("2026-01-01T00:00:00", None) == ["new", "old"]
    assert await keys_of("2026-01-01T00:00:01Z", None) == ["new"]
    assert await keys_of("2026-01-01T01:00:00+02:00", None) == ["new", "old"]
    assert await keys_of("2026-01-02T01:00:00+02:00", None) == ["new"]
    assert await keys_of(None, "2026-01-02") == ["new", "old"]
    assert await keys_of(None, "2026-01-01T12:00") == ["old"]


async def test_a_row_that_does_not_tell_its_time_is_inside_every_time(
    plain: Source,
) -> None:
    relay = relay_source(plain)
    await plain.execute("ALTER TABLE outbox ALTER created_at DROP NOT NULL")
    await plain.insert_event("order", "timeless")
    await plain.execute("UPDATE outbox SET created_at = NULL")

    for bounds in (
        Bounds(since=parse_since("9999-01-01")),
        Bounds(until=parse_since("1970-01-01")),
    ):
        assert keys(await replayed(relay, bounds)) == ["timeless"]


async def test_a_time_that_no_column_tells_is_refused_with_what_can_be_done(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("18", "pgoutput")
    await source.create_outbox(WITHOUT_TIME)
    await source.insert_event("order", "k")
    relay = relay_source(source)
    bounds = Bounds(since=parse_since("2026-01-01"))

    with pytest.raises(
        RequirementMissing, match=r"public.outbox .* created_at"
    ) as told:
        await replayed(relay, bounds)
    assert "track_commit_timestamp" in told.value.hint
    assert keys(await replayed(relay, bounds, time_column="made_at")) == ["k"]
    with pytest.raises(RequirementMissing, match=r"public.outbox .* payload"):
        await replayed(relay, bounds, time_column="payload")


async def test_a_commit_time_needs_no_column(tracking: Source) -> None:
    await tracking.insert_event("order", "k")
    await tracking.execute("ALTER TABLE outbox DROP created_at")

    events = await replayed(
        relay_source(tracking), Bounds(since=parse_since("2026-01-01"))
    )

    assert keys(events) == ["k"]


@pytest.mark.parametrize("text", ["7f0c0000-0000-4000-8000-000000000000", "no uuid"])
async def test_an_event_that_is_not_there_is_said_and_the_snapshot_goes_on(
    plain: Source, text: str
) -> None:
    relay = relay_source(plain)
    await plain.insert_event("order", "k")

    async with opened(relay) as snapshot:
        with pytest.raises(
            SettingsError, match=f"event {text} is not in public.outbox"
        ):
            await events_of(snapshot, relay, Bounds(since=parse_since(text)))
        assert keys(await events_of(snapshot, relay, Bounds())) == ["k"]


async def test_an_event_of_one_table_bounds_the_others_by_its_transaction(
    plain: Source,
) -> None:
    await plain.execute("CREATE TABLE public.second (LIKE outbox INCLUDING ALL)")
    await plain.execute("ALTER TABLE public.second ALTER id TYPE text")
    tables = (TableName("public", "second"), TableName("public", "outbox"))
    relay = relay_source(plain, tables=tables)
    into_second = (
        "INSERT INTO second (aggregatetype, aggregateid, type) VALUES ('x', %s, 'y')"
    )
    await plain.execute(into_second, "second-old")
    await plain.insert_event("order", "old")
    event_id = await plain.insert_event("order", "here")
    await plain.execute(into_second, "second-new")
    await plain.insert_event("order", "new")

    events = await replayed(relay, Bounds(since=parse_since(event_id)))

    assert keys(events) == ["second-new", "here", "new"]


async def test_an_event_bounds_what_its_own_statement_wrote_elsewhere(
    plain: Source,
) -> None:
    """Where rows of one statement lie in their tables says nothing of their order."""
    await plain.execute("CREATE TABLE public.second (LIKE outbox INCLUDING ALL)")
    tables = (TableName("public", "outbox"), TableName("public", "second"))
    relay = relay_source(plain, tables=tables)
    into = "INTO {} (aggregatetype, aggregateid, type) VALUES ('x', '{}', 'y')"
    await plain.execute(
        f"WITH first AS (INSERT {into.format('second', 'in-second')})"
        f" INSERT {into.format('outbox', 'in-outbox')}"
    )
    for table in ("outbox", "second"):
        event = parse_since(str(await plain.value(f"SELECT id FROM {table}")))
        for bounds in (Bounds(since=event), Bounds(until=event)):
            events = await replayed(relay, bounds)
            assert keys(events) == ["in-outbox", "in-second"]


async def test_rows_from_before_commits_were_tracked_come_first_by_their_own_time(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    server = private_postgres("18")
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    for name in ("old-1", "old-2"):
        await source.insert_event("order", name)
    between = await source.value("SELECT clock_timestamp()")
    await source.insert_event("order", "old-3")
    await source.execute("ALTER SYSTEM SET track_commit_timestamp = on")
    await source.disconnect()
    await asyncio.to_thread(server.restart)
    await source.insert_event("order", "new")
    relay = relay_source(source)
    middle = await source.value("SELECT id FROM outbox WHERE aggregateid = 'old-2'")

    assert keys(await replayed(relay)) == ["old-1", "old-2", "old-3", "new"]
    for since, expected in (
        (parse_since(str(middle)), ["old-2", "old-3", "new"]),
        (Since(between), ["old-3", "new"]),
    ):
        assert keys(await replayed(relay, Bounds(since=since))) == expected


async def test_a_key_is_compared_as_its_type_does(plain: Source) -> None:
    await plain.execute("ALTER TABLE outbox ADD number bigint")
    for name in ("a", "b", "a"):
        await plain.insert_event("order", name)
    await plain.execute("UPDATE outbox SET number = 7 WHERE aggregateid = 'b'")
    by_number = relay_source(plain, columns=Columns(key=("number",)))
    keyless = relay_source(plain, columns=Columns(key=()))

    assert keys(await replayed(relay_source(plain), Bounds(key="a"))) == ["a", "a"]
    assert keys(await replayed(relay_source(plain), Bounds(key="a' OR 'a"))) == []
    assert keys(await replayed(by_number, Bounds(key=" 07"))) == ["7"]
    with pytest.raises(SettingsError, match=r"key 'x' is none of public.outbox"):
        await replayed(by_number, Bounds(key="x"))
    with pytest.raises(SettingsError, match="NUL"):
        await replayed(relay_source(plain), Bounds(key="a\0"))
    with pytest.raises(SettingsError, match="has no key column"):
        await replayed(keyless, Bounds(key="x"))


async def test_all_bounds_hold_at_once(tracking: Source) -> None:
    relay = relay_source(tracking)
    for name in ("a", "b", "a", "b", "a"):
        await tracking.insert_event("order", name)
    rows = await tracking.fetch(
        "SELECT id, xmin::text::int8 AS xid, pg_xact_commit_timestamp(xmin) AS at"
        " FROM outbox ORDER BY at"
    )
    until = rows[3]["at"]
    assert isinstance(until, datetime)

    events = await replayed(
        relay,
        Bounds(
            horizon=rows[1]["xid"],
            since=parse_since(str(rows[1]["id"])),
            until=Since(until),
            key="a",
        ),
    )

    assert [event.event_id for event in events] == [str(rows[2]["id"])]
