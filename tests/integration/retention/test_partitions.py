"""Whole partitions go when they are past and acknowledged, and nobody is in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from cdc.retention import Retention
from slots.errors import ServerRefused
from tests.postgres_source import connect
from tests.pruning import HOUR, INSERT, certain, count, pruned
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres_source import Source

AT = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
    " VALUES ('o', 'late', 't', %s)"
)


async def exists(source: Source, name: str = "outbox_old") -> bool:
    return bool(await source.value("SELECT to_regclass(%s) IS NOT NULL", name))


async def test_a_partition_that_is_past_and_acknowledged_is_dropped_whole(
    partitioned: Source,
) -> None:
    """The one of now and the one for the rest are never dropped, only emptied."""
    await partitioned.execute(INSERT, "2 hours", 4)
    await partitioned.execute(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
        " VALUES ('o', 'k', 't', '1999-01-01')"
    )
    horizon = await certain(partitioned)

    would = await pruned(partitioned, horizon, dry_run=True)
    assert await exists(partitioned)
    done = await pruned(partitioned, horizon)

    assert done == would
    assert (done.dropped, done.deleted, done.warnings) == (["outbox_old"], 5, [])
    assert not await exists(partitioned)
    assert await exists(partitioned, "outbox_current")
    assert await exists(partitioned, "outbox_rest")
    assert await count(partitioned) == 0


async def test_a_partition_with_one_unacknowledged_row_stays_with_it(
    partitioned: Source,
) -> None:
    horizon = await certain(partitioned)
    await partitioned.execute(AT, "2001-06-01")

    done = await pruned(partitioned, horizon)

    assert (done.dropped, done.deleted, done.unacknowledged) == ([], 20, 1)
    assert await exists(partitioned)


async def test_a_partition_of_young_rows_stays(partitioned: Source) -> None:
    done = await pruned(
        partitioned, await certain(partitioned), Retention(keep_s=100 * 365 * 86400.0)
    )

    assert (done.dropped, done.deleted) == ([], 0)
    assert await count(partitioned) == 20


@pytest.mark.parametrize("time", ["2001-06-01", "2003-01-01"])
async def test_beside_an_open_transaction_a_partition_stays_and_no_writer_waits(
    partitioned: Source, time: str
) -> None:
    """It has written to this partition, or to another one of the table."""
    horizon = await certain(partitioned)
    async with (
        await connect(partitioned.dsn) as held,
        await connect(partitioned.dsn) as beside,
    ):
        await beside.execute("SET lock_timeout = '1s'")
        async with held.transaction():
            await held.execute(AT, (time,))
            pruning = asyncio.create_task(pruned(partitioned, horizon))
            written = 0
            while not pruning.done():
                await beside.execute(INSERT, ("1 minute", 1))
                written += 1
            done = await pruning
    assert (done.dropped, done.deleted) == ([], 20)
    assert "it is in use" in done.warnings[0]
    assert await count(partitioned) == written + 1


async def test_a_row_that_comes_in_before_the_lock_is_seen_behind_it(
    partitioned: Source,
) -> None:
    """It commits while the drop waits for its transaction."""
    horizon = await certain(partitioned)
    async with await connect(partitioned.dsn) as writer:
        await writer.execute("BEGIN")
        await writer.execute(AT, ("2001-06-01",))
        pruning = asyncio.create_task(pruned(partitioned, horizon))

        async def waits() -> bool:
            query = (
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
                " AND relation = 'outbox_old'::regclass"
            )
            return bool(await partitioned.value(query))

        await eventually(waits, what="the drop waits for the writer")
        await writer.execute("COMMIT")
        done = await pruning

    assert (done.dropped, await count(partitioned)) == ([], 1)


async def test_a_bound_that_is_no_time_drops_nothing(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    """A text that reads like a day, below a partition by time."""
    source = await source_of("18", "pgoutput")
    await source.execute(
        "CREATE TABLE outbox (day text NOT NULL, created_at timestamptz NOT NULL)"
        " PARTITION BY RANGE (created_at)"
    )
    await source.execute(
        "CREATE TABLE outbox_all PARTITION OF outbox"
        " FOR VALUES FROM (MINVALUE) TO (MAXVALUE) PARTITION BY RANGE (day)"
    )
    await source.execute(
        "CREATE TABLE outbox_days PARTITION OF outbox_all"
        " FOR VALUES FROM ('19990101') TO ('20010101')"
    )
    await source.execute("INSERT INTO outbox VALUES ('20000101', now())")

    done = await pruned(source, await certain(source))

    assert (done.dropped, done.deleted, await count(source)) == ([], 0, 1)


async def test_leaves_below_leaves_are_dropped_by_their_own_time(
    source_of: Callable[..., Awaitable[Source]],
) -> None:
    source = await source_of("15", "pgoutput")
    await source.execute(
        "CREATE TABLE outbox (tenant int, created_at timestamp)"
        " PARTITION BY LIST (tenant)"
    )
    for tenant in (1, 2):
        await source.execute(
            f"CREATE TABLE outbox_{tenant} PARTITION OF outbox"
            f" FOR VALUES IN ({tenant}) PARTITION BY RANGE (created_at)"
        )
        await source.execute(
            f'CREATE TABLE "Outbox {tenant} ""2001""" PARTITION OF outbox_{tenant}'
            " FOR VALUES FROM ('2001-01-01') TO ('2002-01-01')"
        )
    await source.execute("INSERT INTO outbox VALUES (1, '2001-03-04')")

    done = await pruned(source, await certain(source))

    assert done.dropped == ['Outbox 1 "2001"', 'Outbox 2 "2001"']


async def test_a_role_that_owns_nothing_deletes_the_rows_and_is_told(
    partitioned: Source,
) -> None:
    role = f"pruner_{partitioned.slot}"
    await partitioned.execute(f"CREATE ROLE {role} LOGIN")
    try:
        for name in ("old", "current", "rest"):
            await partitioned.execute(
                f"GRANT SELECT, DELETE ON outbox_{name} TO {role}"
            )
        horizon = await certain(partitioned)
        dsn = make_conninfo(partitioned.dsn, user=role)
        done = await pruned(partitioned, horizon, dsn=dsn)
        assert (done.dropped, done.deleted) == ([], 20)
        (warning,) = done.warnings
        remedy = warning.partition("drop it: ")[2]
        await partitioned.execute(remedy)
        await partitioned.execute(
            f"ALTER TABLE outbox OWNER TO {role};"
            f" GRANT CREATE ON SCHEMA public TO {role}"
        )
        assert (await pruned(partitioned, horizon, dsn=dsn)).dropped == ["outbox_old"]
    finally:
        await partitioned.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        await partitioned.execute(f"DROP OWNED BY {role}")
        await partitioned.execute(f"DROP ROLE {role}")


async def test_a_foreign_key_to_a_partition_is_named(partitioned: Source) -> None:
    """The partition cannot be dropped, and the row that is referred to not deleted."""
    await partitioned.execute("ALTER TABLE outbox ADD PRIMARY KEY (id, created_at)")
    await partitioned.execute(
        "CREATE TABLE receipts (id uuid, at timestamptz,"
        " CONSTRAINT of_event FOREIGN KEY (id, at) REFERENCES outbox (id, created_at))"
    )
    done = await pruned(partitioned, await certain(partitioned), HOUR)
    assert (done.dropped, done.deleted) == ([], 20)
    assert "not dropped" in done.warnings[0]
    assert "of_event" in done.warnings[0]

    await partitioned.execute(AT, "2001-06-01")
    await partitioned.execute("INSERT INTO receipts SELECT id, created_at FROM outbox")
    with pytest.raises(ServerRefused, match="receipts"):
        await pruned(partitioned, await certain(partitioned), HOUR)
    assert await count(partitioned) == 1
