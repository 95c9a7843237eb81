"""G03: with LOGIN alone slots are seen; with pg_monitor their sessions are, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slots import catalog
from slots.connect import connect
from slots.errors import PermissionDenied

if TYPE_CHECKING:
    from tests.slot_stage import Command, Stage

pytestmark = pytest.mark.postgres

ROLES = {
    "plain": "CREATE ROLE plain LOGIN",
    "streamer": "CREATE ROLE streamer LOGIN REPLICATION",
    "monitor": "CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor",
}


@pytest.fixture
async def staged(stage: Stage) -> Stage:
    """A slot with a consumer, held up by a transaction of somebody else's."""
    for statement in ROLES.values():
        await stage.admin.execute(statement.encode())
    await catalog.create_slot(stage.admin, "orders")
    await stage.begin_write()
    await stage.write(3)
    await stage.confirm_all("orders")
    await stage.consumer("orders")
    return stage


@pytest.mark.parametrize("role", ROLES)
async def test_g03_every_role_sees_slots_and_who_holds_their_wal(
    staged: Stage, slots: Command, role: str
) -> None:
    target = staged.as_role(role)

    document = await slots.json(target, "why", "orders")

    assert document["slot"]["retained_bytes"] > 2_000_000
    assert document["slot"]["active_application"] == "sleepy"
    (blocker,) = document["blockers"]
    assert blocker["pid"] is not None
    assert blocker["database"] == "postgres"
    assert blocker["user"] == "postgres"
    sees = role == "monitor"
    assert (blocker["open_s"] is not None) is sees
    assert (blocker["state"] == "idle in transaction") is sees
    assert (document["slot"]["active_address"] == "127.0.0.1") is sees
    assert document["causes"][-1]["who"] == "transaction"


async def test_g03_what_is_not_seen_is_said_with_the_statement_that_helps(
    staged: Stage, slots: Command
) -> None:
    assert await slots(staged.as_role("plain"), "why", "orders") == 0
    assert "GRANT pg_monitor TO plain" in slots.out

    assert await slots(staged.as_role("monitor"), "why", "orders") == 0
    assert "GRANT" not in slots.out


@pytest.mark.parametrize("role", ["plain", "monitor"])
async def test_g03_changing_a_slot_takes_the_replication_right(
    staged: Stage, slots: Command, role: str
) -> None:
    target = staged.as_role(role)

    assert await slots(target, "create", "new", "--yes") == 1

    assert slots.err.count("\n") == 2
    assert "slots: " in slots.err
    async with await connect(target) as connection:
        with pytest.raises(PermissionDenied) as caught:
            await catalog.create_slot(connection, "new")
    assert "REPLICATION" in caught.value.hint
    assert "rds_replication" in caught.value.hint


async def test_g03_a_replication_role_may_make_move_copy_and_drop(
    staged: Stage, slots: Command
) -> None:
    target = staged.as_role("streamer")
    await staged.end_writes()

    assert await slots(target, "create", "new", "--yes") == 0, slots.err
    assert await slots(target, "copy", "new", "newer", "--yes") == 0, slots.err
    await staged.write(1)
    assert await slots(target, "advance", "new", "now", "--yes") == 0, slots.err
    for name in ("new", "newer"):
        assert await slots(target, "drop", name, "--yes") == 0, slots.err
