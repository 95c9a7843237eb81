"""Rows go when they are old and certainly acknowledged; every other row stays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from cdc.errors import OperatorNeeded, RequirementMissing
from cdc.retention import Retention, prune
from slots.connect import Target
from slots.connect import connect as connect_pinned
from tests.postgres_source import connect
from tests.pruning import HOUR, INSERT, TABLES, certain, count, pruned
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.postgres_source import Source


async def test_old_rows_below_the_horizon_go_and_young_ones_stay(
    outbox: Source,
) -> None:
    """Many of one transaction, and so of one age; many of ages of their own."""
    await outbox.execute(INSERT, "2 hours", 2500)
    for minutes in range(61, 91):
        await outbox.execute(INSERT, f"{minutes} minutes", 5)
    await outbox.execute(INSERT, "1 minute", 10)

    done = await pruned(
        outbox, await certain(outbox), Retention(keep_s=3600.0, batch_rows=100)
    )

    assert (done.deleted, done.unacknowledged) == (2650, 0)
    assert await count(outbox) == 10
    assert done.oldest == await outbox.value("SELECT min(created_at) FROM outbox")
    assert done.warnings == []


async def test_a_row_that_is_not_certainly_acknowledged_stays_whatever_its_age(
    outbox: Source,
) -> None:
    await outbox.execute(INSERT, "2 hours", 5)
    horizon = await certain(outbox)
    await outbox.execute(INSERT, "10 years", 7)
    # Its newer transaction counts, whatever was done to the row.
    await outbox.execute(INSERT, "1 year", 1)
    await outbox.execute("UPDATE outbox SET type = 'u' WHERE aggregateid = '5'")

    done = await pruned(outbox, horizon)

    assert (done.deleted, done.unacknowledged) == (4, 9)
    assert await count(outbox) == 9
    assert done.oldest == await outbox.value("SELECT min(created_at) FROM outbox")


async def test_a_savepoints_row_of_a_transaction_that_was_open_stays(
    outbox: Source,
) -> None:
    """A later transaction has ended by then, and the savepoint has an id of its own."""
    async with await connect(outbox.dsn) as held:
        async with held.transaction():
            await held.execute("SELECT pg_current_xact_id()")
            async with held.transaction():
                await held.execute(INSERT, ("2 hours", 3))
            await outbox.execute(INSERT, "2 hours", 4)
            horizon = await certain(outbox)
        done = await pruned(outbox, horizon)
        assert (done.deleted, await count(outbox)) == (0, 7)

    assert (await pruned(outbox, await certain(outbox))).deleted == 7


async def test_rows_of_a_prepared_transaction_stay_when_it_commits(
    outbox: Source,
) -> None:
    name = outbox.slot
    async with await connect(outbox.dsn) as preparing:
        await preparing.execute("BEGIN")
        await preparing.execute(INSERT, ("2 hours", 3))
        await preparing.execute(f"PREPARE TRANSACTION '{name}'".encode())
    try:
        await outbox.execute(INSERT, "2 hours", 4)
        horizon = await certain(outbox)
    finally:
        await outbox.execute(f"COMMIT PREPARED '{name}'")

    done = await pruned(outbox, horizon)

    assert (done.deleted, await count(outbox)) == (0, 7)


async def test_a_dry_run_counts_as_it_would_be_and_deletes_nothing(
    outbox: Source,
) -> None:
    await outbox.execute(INSERT, "2 hours", 30)
    horizon = await certain(outbox)
    await outbox.execute(INSERT, "3 hours", 2)

    would = await pruned(outbox, horizon, dry_run=True)

    assert (would.deleted, await count(outbox)) == (30, 32)
    assert would == await pruned(outbox, horizon)


async def test_a_row_without_an_age_stays_and_is_told(outbox: Source) -> None:
    await outbox.execute("ALTER TABLE outbox ALTER created_at DROP NOT NULL")
    await outbox.execute(INSERT, "2 hours", 3)
    await outbox.execute("UPDATE outbox SET created_at = NULL WHERE aggregateid = '2'")

    done = await pruned(outbox, await certain(outbox))

    assert (done.deleted, await count(outbox)) == (2, 1)
    assert done.warnings == ["public.outbox: 1 rows have no age; they stay"]


async def test_locked_rows_are_skipped_and_make_nobody_wait(outbox: Source) -> None:
    await outbox.execute(INSERT, "2 hours", 300)
    horizon = await certain(outbox)
    async with await connect(outbox.dsn) as other, other.transaction():
        await other.execute(
            "SELECT FROM outbox WHERE aggregateid IN ('1', '150') FOR UPDATE"
        )
        done = await pruned(outbox, horizon, Retention(keep_s=3600.0, batch_rows=100))
        assert (done.deleted, await count(outbox)) == (298, 2)

    assert (await pruned(outbox, horizon)).deleted == 2


@pytest.mark.parametrize("column", ["timestamp", "date"])
async def test_an_age_may_be_a_timestamp_without_a_zone_or_a_date(
    outbox: Source, column: str
) -> None:
    """They are taken as UTC, whatever the role's own zone is."""
    await outbox.execute("ALTER ROLE CURRENT_USER SET timezone = 'Pacific/Auckland'")
    try:
        await outbox.execute(f"ALTER TABLE outbox ALTER created_at TYPE {column}")
        for age, key in (("49 hours", "old"), ("23 hours", "young")):
            await outbox.execute(
                "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
                " VALUES ('o', %s, 't', now() AT TIME ZONE 'UTC' - %s::interval)",
                key,
                age,
            )
        done = await pruned(
            outbox, await certain(outbox), Retention(keep_s=24 * 3600.0)
        )
    finally:
        await outbox.execute("ALTER ROLE CURRENT_USER RESET timezone")

    assert done.deleted == 1
    assert await outbox.value("SELECT aggregateid FROM outbox") == "young"


async def test_another_column_may_tell_the_age(plain: Source) -> None:
    await plain.execute('ALTER TABLE outbox RENAME created_at TO "Written at"')
    await plain.execute('CREATE INDEX ON outbox ("Written at")')
    await plain.execute(INSERT.replace("created_at", '"Written at"'), "2 hours", 3)

    done = await pruned(
        plain,
        await certain(plain),
        Retention(keep_s=3600.0, age_column="Written at"),
    )

    assert done.deleted == 3


async def test_without_an_age_the_remedies_are_named(plain: Source) -> None:
    await plain.execute("ALTER TABLE outbox DROP COLUMN created_at")
    with pytest.raises(RequirementMissing) as missing:
        await pruned(plain, await certain(plain))
    assert "CDC_RETENTION__AGE_COLUMN" in missing.value.hint
    assert "track_commit_timestamp" in missing.value.hint


async def test_without_a_table_its_name_is_said(plain: Source) -> None:
    await plain.execute("DROP TABLE outbox")
    with pytest.raises(RequirementMissing, match=r"public\.outbox does not exist"):
        await pruned(plain, await certain(plain))


@pytest.mark.parametrize("major", ["15", "18"])
async def test_a_server_that_remembers_commits_tells_the_age_by_itself(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    major: str,
) -> None:
    """Two seconds lie between the rows, and the limit in their middle."""
    server = await asyncio.to_thread(
        private_postgres, major, settings={"track_commit_timestamp": "on"}
    )
    source = await source_of(major, "pgoutput", server=server)
    await source.execute("CREATE TABLE outbox (aggregateid text)")
    await source.execute("INSERT INTO outbox VALUES ('old'), ('old')")
    await source.execute("SELECT pg_sleep(2)")
    await source.execute("INSERT INTO outbox VALUES ('young')")
    horizon = await certain(source)
    age_s = await source.value(
        "SELECT extract(epoch FROM clock_timestamp()"
        " - pg_xact_commit_timestamp(xmin))::float8"
        " FROM outbox WHERE aggregateid = 'young'"
    )

    done = await pruned(source, horizon, Retention(keep_s=age_s + 1.0))

    assert done.deleted == 2
    assert await source.value("SELECT aggregateid FROM outbox") == "young"
    assert done.oldest == await source.value(
        "SELECT pg_xact_commit_timestamp(xmin) FROM outbox"
    )


async def test_a_horizon_ahead_of_the_server_is_another_historys(
    plain: Source,
) -> None:
    await plain.execute(INSERT, "2 hours", 3)
    with pytest.raises(OperatorNeeded, match="another history"):
        await pruned(plain, await certain(plain) + 1000)
    assert await count(plain) == 3


async def test_cancelled_in_the_middle_whole_batches_are_gone(outbox: Source) -> None:
    await outbox.execute(INSERT, "2 hours", 20_000)
    horizon = await certain(outbox)

    async def prune_slowly() -> None:
        async with await connect_pinned(Target(dsn=SecretStr(outbox.dsn))) as ours:
            retention = Retention(keep_s=3600.0, batch_rows=10)
            await prune(ours, TABLES, retention, horizon=horizon)

    async def has_begun() -> bool:
        return await count(outbox) < 20_000

    pruning = asyncio.create_task(prune_slowly())
    await eventually(has_begun, what="the first batch is gone")
    pruning.cancel()
    await asyncio.gather(pruning, return_exceptions=True)

    async def is_alone() -> bool:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        return int(await outbox.value(others, outbox.database)) == 1

    await eventually(is_alone, what="the server has seen that we left")
    left = await count(outbox)
    assert 0 < left < 20_000
    assert left % 10 == 0
    assert (await pruned(outbox, horizon, HOUR)).deleted == left


async def test_a_big_table_without_an_index_is_told_the_statement(
    plain: Source,
) -> None:
    await plain.execute(INSERT, "1 minute", 100_001)
    await plain.execute("ANALYZE outbox")
    horizon = await certain(plain)

    (warning,) = (await pruned(plain, horizon)).warnings
    statement = warning.partition("table: ")[2]
    assert statement.startswith("CREATE INDEX CONCURRENTLY")
    await plain.execute(statement)

    assert (await pruned(plain, horizon)).warnings == []
