"""Retention: what is old and acknowledged goes, everything else stays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from cdc.errors import RequirementMissing
from cdc.outbox import TableName
from cdc.retention import Pruning, Retention, prune
from slots.connect import Target
from slots.connect import connect as connect_pinned
from slots.errors import PermissionDenied
from tests.postgres_source import OUTBOX, connect
from tests.waiting import eventually

if TYPE_CHECKING:
    from cdc.retention import TablePruned
    from tests.postgres_source import Source

TABLES = (TableName("public", "outbox"),)
HOUR = Retention(keep_s=3600.0)
INSERT = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
    " SELECT 'order', n::text, 't', now() - %s::interval FROM generate_series(1, %s) n"
)


@pytest.fixture
async def outbox(source: Source) -> Source:
    await source.execute(OUTBOX)
    return source


async def pruned(
    source: Source,
    horizon: int,
    retention: Retention = HOUR,
    *,
    dry_run: bool = False,
    dsn: str | None = None,
) -> TablePruned:
    target = Target(dsn=SecretStr(dsn or source.dsn))
    async with await connect_pinned(target) as connection:
        (done,) = await prune(
            connection, TABLES, retention, horizon=horizon, dry_run=dry_run
        )
    return done


async def next_xid(source: Source) -> int:
    return int(await source.value("SELECT pg_current_xact_id()::text")) + 1


async def count(source: Source, table: str = "outbox") -> int:
    return int(await source.value(f"SELECT count(*) FROM {table}"))


async def test_old_rows_below_the_horizon_go_and_young_ones_stay(
    outbox: Source,
) -> None:
    await outbox.execute(INSERT, "2 hours", 2500)
    await outbox.execute(INSERT, "1 minute", 10)

    done = await pruned(outbox, await next_xid(outbox))

    assert done.deleted == 2500
    assert done.unacknowledged == 0
    assert await count(outbox) == 10
    assert done.oldest is not None


async def test_a_row_that_is_not_certainly_acknowledged_stays_whatever_its_age(
    outbox: Source,
) -> None:
    await outbox.execute(INSERT, "2 hours", 5)
    horizon = await next_xid(outbox)
    await outbox.execute(INSERT, "10 years", 7)

    done = await pruned(outbox, horizon)

    assert (done.deleted, done.unacknowledged) == (5, 7)
    assert await count(outbox) == 7


async def test_a_savepoints_row_of_an_older_open_transaction_stays(
    outbox: Source,
) -> None:
    """Its own id lies above the one of its transaction, which is the horizon."""
    async with await connect(outbox.dsn) as held, held.transaction():
        row = await (
            await held.execute("SELECT pg_current_xact_id()::text")
        ).fetchone()
        assert row is not None
        horizon = int(next(iter(row.values())))
        async with held.transaction():
            await held.execute(INSERT, ("2 hours", 3))

    done = await pruned(outbox, horizon)

    assert (done.deleted, await count(outbox)) == (0, 3)


async def test_a_dry_run_counts_and_deletes_nothing(outbox: Source) -> None:
    await outbox.execute(INSERT, "2 hours", 30)

    done = await pruned(outbox, await next_xid(outbox), dry_run=True)

    assert (done.deleted, await count(outbox)) == (30, 30)


async def test_a_locked_row_makes_nobody_wait(outbox: Source) -> None:
    await outbox.execute(INSERT, "2 hours", 3)
    horizon = await next_xid(outbox)
    async with await connect(outbox.dsn) as other, other.transaction():
        await other.execute("SELECT * FROM outbox FOR UPDATE")
        done = await pruned(outbox, horizon)
    assert done.deleted == 0
    assert "locked" in done.warnings[0]

    assert (await pruned(outbox, horizon)).deleted == 3


async def test_without_a_time_of_the_row_the_remedies_are_named(
    outbox: Source,
) -> None:
    await outbox.execute("ALTER TABLE outbox DROP COLUMN created_at")
    with pytest.raises(RequirementMissing) as missing:
        await pruned(outbox, await next_xid(outbox))
    assert "CDC_RETENTION__AGE_COLUMN" in missing.value.hint
    assert "track_commit_timestamp" in missing.value.hint


async def test_a_role_without_the_right_is_told_the_grant(outbox: Source) -> None:
    role = f"reader_{outbox.slot}"
    await outbox.execute(f"CREATE ROLE {role} LOGIN")
    await outbox.execute(f"GRANT SELECT ON outbox TO {role}")
    await outbox.execute(INSERT, "2 hours", 1)
    horizon = await next_xid(outbox)
    try:
        with pytest.raises(PermissionDenied) as denied:
            await pruned(outbox, horizon, dsn=make_conninfo(outbox.dsn, user=role))
        assert "GRANT SELECT, DELETE" in denied.value.hint
        await outbox.execute(f"GRANT DELETE ON outbox TO {role}")
        done = await pruned(outbox, horizon, dsn=make_conninfo(outbox.dsn, user=role))
        assert done.deleted == 1
    finally:
        await outbox.execute(f"DROP OWNED BY {role}")
        await outbox.execute(f"DROP ROLE {role}")


PARTITIONED = """
CREATE TABLE outbox (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
    payload jsonb, created_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (created_at)
"""


@pytest.fixture
async def partitioned(source: Source) -> Source:
    await source.execute(PARTITIONED)
    await source.execute(
        "CREATE TABLE outbox_old PARTITION OF outbox"
        " FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')"
    )
    await source.execute("CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT")
    await source.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
        " SELECT 'o', 'k', 't', '2001-06-01' FROM generate_series(1, 20)"
    )
    return source


async def has_old(source: Source) -> bool:
    return bool(await source.value("SELECT to_regclass('outbox_old') IS NOT NULL"))


async def test_a_whole_partition_that_is_past_and_acknowledged_is_dropped(
    partitioned: Source,
) -> None:
    await partitioned.execute(INSERT, "2 hours", 4)

    done = await pruned(partitioned, await next_xid(partitioned))

    assert done.dropped == ["outbox_old"]
    assert done.deleted == 4  # of the default partition, which is never dropped
    assert not await has_old(partitioned)
    assert await count(partitioned) == 0


async def test_a_partition_with_one_unacknowledged_row_is_not_dropped(
    partitioned: Source,
) -> None:
    horizon = await next_xid(partitioned)
    await partitioned.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
        " VALUES ('o', 'late', 't', '2001-06-01')"
    )

    done = await pruned(partitioned, horizon)

    assert (done.dropped, done.deleted, done.unacknowledged) == ([], 20, 1)
    assert await has_old(partitioned)


async def test_a_partition_that_is_written_to_is_left_for_later(
    partitioned: Source,
) -> None:
    horizon = await next_xid(partitioned)
    async with await connect(partitioned.dsn) as writer, writer.transaction():
        await writer.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
            " VALUES ('o', 'now', 't', '2001-06-01')"
        )
        done = await pruned(partitioned, horizon)
        assert done.dropped == []
    assert await has_old(partitioned)
    assert await count(partitioned) == 1


async def test_it_goes_on_beside_the_relay_and_survives_a_failure(
    outbox: Source,
) -> None:
    """No horizon, then none that covers the rows, then one; a missing table between."""
    await outbox.execute(INSERT, "2 hours", 50)
    known: list[int | None] = [None]
    pruning = Pruning(
        Target(dsn=SecretStr(outbox.dsn)),
        TABLES,
        HOUR,
        interval_s=0.05,
        horizon=lambda: known[-1],
    )
    running = asyncio.create_task(pruning.run())
    try:
        await outbox.execute("ALTER TABLE outbox RENAME TO away")
        known.append(1)
        await outbox.execute("ALTER TABLE away RENAME TO outbox")
        known.append(await next_xid(outbox))

        async def is_empty() -> bool:
            return await count(outbox) == 0

        await eventually(is_empty, 10.0, what="the rows are deleted")
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
