"""A slot and the snapshot of its beginning are made together, or nothing is made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from slots import catalog
from slots.connect import Target, connect
from slots.errors import ServerRefused, ServerUnavailable, SlotNotReady
from tests.integration.slots.conftest import MAJORS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from slots.catalog import Exported
    from tests.proxy import Proxy
    from tests.slot_stage import Stage

    StageOf = Callable[..., Awaitable[Stage]]

pytestmark = pytest.mark.postgres


async def line_of(stage: Stage) -> AsyncConnection[TupleRow]:
    line = await connect(stage.target, replication=True)
    stage._stack.push_async_callback(line.close)
    return line


async def make(
    stage: Stage, line: AsyncConnection[TupleRow], timeout_s: float = 20
) -> Exported:
    return await catalog.create_slot_with_snapshot(
        line, stage.admin, "orders", plugin="test_decoding", timeout_s=timeout_s
    )


async def seen_by(
    connection: AsyncConnection[TupleRow], snapshot_name: str
) -> list[int]:
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot_name}'".encode())
    cursor = await connection.execute("SELECT i FROM public.t ORDER BY i")
    rows = [row[0] for row in await cursor.fetchall()]
    await connection.execute("COMMIT")
    return rows


async def sent_by_slot(stage: Stage) -> list[str]:
    cursor = await stage.admin.execute(
        "SELECT data FROM pg_catalog.pg_logical_slot_peek_changes('orders', NULL, NULL)"
        " WHERE data LIKE 'table%'"
    )
    return [row[0].rpartition(":")[2] for row in await cursor.fetchall()]


@pytest.mark.parametrize("major", MAJORS)
async def test_snapshot_and_slot_make_the_whole_without_a_gap_or_an_overlap(
    stage_of: StageOf, major: str
) -> None:
    stage = await stage_of(major)
    line = await line_of(stage)
    await stage.admin.execute("INSERT INTO public.t VALUES (1), (2)")

    made = await make(stage, line)
    await stage.admin.execute("INSERT INTO public.t VALUES (3)")

    assert made.consistent_point == (await stage.slot("orders")).confirmed_flush_lsn
    assert await seen_by(await stage.session(), made.snapshot_name) == [1, 2]
    assert await sent_by_slot(stage) == ["3"]


async def test_out_of_time_it_names_who_is_waited_for_and_leaves_nothing(
    stage: Stage,
) -> None:
    await stage.admin.execute("CREATE DATABASE other")
    writing = await stage.begin_write("other")
    preparing = await stage.begin_write()
    await preparing.execute("PREPARE TRANSACTION 'left open'")
    stage._writing.remove(preparing)
    line = await line_of(stage)

    with pytest.raises(SlotNotReady, match=r"slot orders .* within 0\.5 s") as raised:
        await make(stage, line, timeout_s=0.5)

    assert f"pid {writing.info.backend_pid} " in raised.value.hint
    assert "database other" in raised.value.hint
    assert "prepared transaction 'left open'" in raised.value.hint
    assert await catalog.get_slot(stage.admin, "orders") is None

    await stage.end_writes()
    await stage.admin.execute("ROLLBACK PREPARED 'left open'")
    made = await make(stage, line)
    assert await seen_by(await stage.session(), made.snapshot_name) == []


async def test_a_transaction_that_began_during_the_wait_is_not_blamed(
    stage: Stage,
) -> None:
    old = await stage.begin_write()
    line = await line_of(stage)

    async def waits() -> bool:
        slot = await catalog.get_slot(stage.admin, "orders")
        return slot is not None and slot.is_being_made

    making = asyncio.create_task(make(stage, line, timeout_s=3))
    await eventually(waits, what="the creation waits")
    has_waited = asyncio.get_running_loop().time() + 1.0
    await eventually(
        lambda: asyncio.get_running_loop().time() > has_waited,
        what="it has waited for longer than a reading takes",
    )
    new = await stage.begin_write()
    with pytest.raises(SlotNotReady) as raised:
        await making

    assert f"pid {old.info.backend_pid} " in raised.value.hint
    assert f"pid {new.info.backend_pid} " not in raised.value.hint


async def test_being_cancelled_leaves_nothing_behind(stage: Stage) -> None:
    await stage.begin_write()
    line = await line_of(stage)

    async def waits() -> bool:
        slot = await catalog.get_slot(stage.admin, "orders")
        return slot is not None and slot.is_being_made

    making = asyncio.create_task(make(stage, line))
    await eventually(waits, what="the creation waits")
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making

    assert await catalog.get_slot(stage.admin, "orders") is None


async def test_a_cut_line_is_an_error_of_ours(stage: Stage) -> None:
    await stage.begin_write()
    line = await line_of(stage)

    async def terminated() -> bool:
        slot = await catalog.get_slot(stage.admin, "orders")
        if slot is None:
            return False
        await catalog.changes.terminate_consumer(stage.admin, slot)
        return True

    making = asyncio.create_task(make(stage, line))
    await eventually(terminated, what="the walsender is ended")
    with pytest.raises(ServerUnavailable, match="terminating connection"):
        await making


async def test_a_name_that_is_taken_is_refused_and_the_slot_stays(stage: Stage) -> None:
    await catalog.create_slot(stage.admin, "orders")
    line = await line_of(stage)

    with pytest.raises(ServerRefused, match=r"orders.* already exists"):
        await make(stage, line)

    assert (await stage.slot("orders")).plugin == "pgoutput"


async def test_failover_is_of_17_and_later(stage: Stage) -> None:
    line = await line_of(stage)

    async def making() -> Exported:
        return await catalog.create_slot_with_snapshot(
            line, stage.admin, "a", plugin="pgoutput", failover=True, timeout_s=20
        )

    if stage.admin.info.server_version < 170000:
        with pytest.raises(ServerRefused, match="17 and later"):
            await making()
        assert await catalog.get_slot(stage.admin, "a") is None
    else:
        await making()
        assert (await stage.slot("a")).failover


async def test_beside_a_silent_server_it_ends_all_the_same(
    stage: Stage,
    proxy: Callable[..., Awaitable[Proxy]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slots.catalog.exported._ANSWER_LIMIT_S", 0.5)
    await stage.begin_write()
    through = await proxy("127.0.0.1", stage.server.port)
    dsn = make_conninfo(stage.target.dsn.get_secret_value(), port=through.port)
    line = await connect(Target(dsn=SecretStr(dsn)), replication=True)
    connection = await connect(Target(dsn=SecretStr(dsn)))
    through.stall()

    async with asyncio.timeout(10):
        with pytest.raises(ServerUnavailable, match="no answer within"):
            await catalog.create_slot_with_snapshot(
                line, connection, "orders", plugin="pgoutput", timeout_s=0.5
            )

    assert line.closed
    assert connection.closed
