"""Field case G03: a managed Postgres, and roles that may do no more than they must."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from cdc.errors import RequirementMissing
from cdc.finding import Status
from cdc.requirements import init, still_covered
from slots.connect import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.requirements.stage import Stage

    MakeRole = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.postgres


async def test_login_alone_is_told_the_one_right_it_lacks(
    role: MakeRole, stage: Stage
) -> None:
    """One line: which right, which statement, and how managed services name it."""
    name = await role()
    stage.act_as(name)

    assert await stage.unmet() == ["postgres.replication"]

    found = await stage.finding("postgres.replication")
    assert name in found.detail
    assert "\n" not in found.detail
    assert "GRANT rds_replication" in found.remedy
    await stage.run(found.remedy.partition(" (managed")[0])
    assert await stage.unmet() == []


async def test_login_and_replication_is_enough(role: MakeRole, stage: Stage) -> None:
    """No SELECT on the outbox, no ownership, no view on statistics is asked for."""
    name = await role("REPLICATION")
    stage.act_as(name)

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await stage.run("SELECT FROM outbox", stage.dsn)
    assert await stage.unmet() == []
    facts = await stage.facts()
    async with await connect(stage.target) as connection:
        await still_covered(connection, stage.wanted(), facts)


async def test_the_right_to_read_the_table_changes_nothing(
    role: MakeRole, stage: Stage
) -> None:
    name = await role("REPLICATION")
    await stage.run(f"GRANT SELECT ON outbox TO {name}")
    stage.act_as(name)

    assert await stage.unmet() == []


async def test_the_owner_of_the_table_needs_the_right_to_replicate_too(
    role: MakeRole, stage: Stage
) -> None:
    name = await role()
    await stage.run(
        f"ALTER TABLE outbox OWNER TO {name}; ALTER PUBLICATION walferry OWNER TO"
        f" {name}"
    )
    stage.act_as(name)

    assert await stage.unmet() == ["postgres.replication"]


async def test_a_managed_role_is_believed_only_when_the_server_believes_it(
    role: MakeRole, stage: Stage
) -> None:
    """Membership in rds_replication means nothing to a server that is no RDS.

    There the remedy is the statement that RDS wants.
    """
    name = await role()
    await stage.run(f"CREATE ROLE rds_replication; GRANT rds_replication TO {name}")
    stage.act_as(name)
    try:
        found = await stage.finding("postgres.replication")
        assert found.status is Status.FAILURE
        assert found.remedy.startswith(f'GRANT rds_replication TO "{name}";')

        await stage.run(f"ALTER ROLE {name} REPLICATION")
        assert await stage.unmet() == []
    finally:
        await stage.run("DROP ROLE rds_replication")


async def test_a_role_that_may_make_nothing_is_told_what_the_owner_has_to_run(
    role: MakeRole, bare_stage: Stage
) -> None:
    """Each line of init that is refused names itself, and works for the owner."""
    stage = bare_stage
    name = await role("REPLICATION")
    await stage.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    stage.act_as(name)

    with pytest.raises(RequirementMissing, match="may not create table") as no_table:
        await init(stage.target, stage.wanted())
    await stage.run(no_table.value.hint.partition("run: ")[2])

    with pytest.raises(RequirementMissing, match="may not publish") as no_publication:
        await init(stage.target, stage.wanted())
    await stage.run(no_publication.value.hint.partition("run: ")[2])

    assert await init(stage.target, stage.wanted()) == [
        f"slot {stage.source.slot} created (pgoutput)"
    ]
    assert await stage.unmet() == []


async def test_an_owner_without_replication_is_told_who_may_make_the_slot(
    role: MakeRole, bare_stage: Stage
) -> None:
    stage = bare_stage
    name = await role()
    await stage.run(
        f"GRANT CREATE ON SCHEMA public TO {name};"
        f"GRANT CREATE ON DATABASE {stage.source.database} TO {name}"
    )
    stage.act_as(name)

    with pytest.raises(RequirementMissing, match="may not make a slot") as refused:
        await init(stage.target, stage.wanted())

    await stage.run(refused.value.hint.partition(" (managed")[0])
    assert await init(stage.target, stage.wanted()) == [
        f"slot {stage.source.slot} created (pgoutput)"
    ]
