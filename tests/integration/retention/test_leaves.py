"""A right that is missing is named with the statement that gives it."""

from __future__ import annotations

import re
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from slots.errors import PermissionDenied
from tests.postgres_source import connect
from tests.pruning import INSERT, certain, count, pruned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.postgres_source import Source


@asynccontextmanager
async def role(source: Source) -> AsyncIterator[str]:
    """Make a role that may only log in."""
    name = f"pruner {uuid.uuid4().hex[:8]}"
    await source.execute(f'CREATE ROLE "{name}" LOGIN')
    yield name
    await source.execute(f'DROP OWNED BY "{name}"')
    await source.execute(f'DROP ROLE "{name}"')


async def test_a_role_without_rights_is_given_one_statement_after_the_other(
    plain: Source,
) -> None:
    await plain.execute("REVOKE USAGE ON SCHEMA public FROM public")
    await plain.execute("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
    await plain.execute(INSERT, "2 hours", 2)
    horizon = await certain(plain)

    async with role(plain) as pruner:
        dsn = make_conninfo(plain.dsn, user=pruner)
        for words, statement in (
            ("may not use schema public", "GRANT USAGE ON SCHEMA"),
            ("may not delete rows of public.outbox", "GRANT SELECT, DELETE ON"),
            ("row security of public.outbox", "ALTER ROLE"),
        ):
            with pytest.raises(PermissionDenied, match=re.escape(words)) as told:
                await pruned(plain, horizon, dsn=dsn)
            assert pruner in str(told.value)
            assert told.value.hint.startswith(statement)
            await plain.execute(told.value.hint)

        assert (await pruned(plain, horizon, dsn=dsn)).deleted == 2


async def test_a_role_that_may_not_lock_leaves_what_is_locked_and_is_told(
    outbox: Source,
) -> None:
    await outbox.execute(INSERT, "2 hours", 3)
    horizon = await certain(outbox)
    async with role(outbox) as pruner:
        await outbox.execute(f'GRANT SELECT, DELETE ON outbox TO "{pruner}"')
        dsn = make_conninfo(outbox.dsn, user=pruner)
        async with await connect(outbox.dsn) as other, other.transaction():
            await other.execute("SELECT FROM outbox LIMIT 1 FOR UPDATE")
            done = await pruned(outbox, horizon, dsn=dsn)
            assert (done.deleted, await count(outbox)) == (0, 3)
            grant = re.search("GRANT .*(?= skips)", done.warnings[0])
            assert grant is not None
            await outbox.execute(grant[0])

            assert (await pruned(outbox, horizon, dsn=dsn)).deleted == 2
