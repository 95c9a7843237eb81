"""What keeps us from reading every row is said before one is read, with its remedy."""

from __future__ import annotations

import re
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from cdc.errors import ColumnMissing, RequirementMissing
from cdc.outbox import Columns, TableName
from cdc.snapshot import Bounds, open_snapshot
from slots.connect import connect
from slots.errors import PermissionDenied, ServerRefused
from tests.in_process import relay_source
from tests.postgres_source import OUTBOX
from tests.snapshot_reading import events_of, keys, replayed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.postgres_source import Source


@asynccontextmanager
async def role(source: Source) -> AsyncIterator[str]:
    """Make a role that may only log in."""
    name = f"reader {uuid.uuid4().hex[:8]}"
    await source.execute(f'CREATE ROLE "{name}" LOGIN')
    yield name
    await source.execute(f'DROP OWNED BY "{name}"')
    await source.execute(f'DROP ROLE "{name}"')


async def test_a_role_without_rights_is_given_one_statement_after_the_other(
    plain: Source,
) -> None:
    await plain.execute('CREATE SCHEMA "my Schema"')
    await plain.execute(OUTBOX.replace("public.outbox", '"my Schema".outbox'))
    await plain.execute(
        'INSERT INTO "my Schema".outbox (aggregatetype, aggregateid, type)'
        " VALUES ('x', 'k', 'y')"
    )
    await plain.execute('ALTER TABLE "my Schema".outbox ENABLE ROW LEVEL SECURITY')
    tables = (TableName("my Schema", "outbox"),)

    async with role(plain) as reader:
        dsn = make_conninfo(plain.dsn, user=reader)
        relay = relay_source(plain, dsn=dsn, tables=tables)
        for words, statement in (
            ("may not use schema my Schema", "GRANT USAGE ON SCHEMA"),
            ('may not read column id of "my Schema".outbox', "GRANT SELECT ON"),
            ('row security of "my Schema".outbox', "ALTER ROLE"),
        ):
            with pytest.raises(PermissionDenied, match=re.escape(words)) as told:
                await replayed(relay)
            assert reader in str(told.value)
            remedy = told.value.hint.partition(",")[0]
            assert remedy.startswith(statement)
            await plain.execute(remedy)

        assert keys(await replayed(relay)) == ["k"]


async def test_a_right_that_is_missing_for_the_filter_is_named_too(
    plain: Source,
) -> None:
    await plain.execute(f"DROP PUBLICATION {plain.publication}")
    await plain.execute("ALTER TABLE outbox ADD secret text")
    await plain.execute(
        f"CREATE PUBLICATION {plain.publication} FOR TABLE outbox"
        " WHERE (secret IS NULL) WITH (publish = 'insert')"
    )

    async with role(plain) as reader:
        await plain.execute(
            "GRANT SELECT (id, aggregatetype, aggregateid, type, payload, headers)"
            f' ON outbox TO "{reader}"'
        )
        relay = relay_source(plain, dsn=make_conninfo(plain.dsn, user=reader))
        with pytest.raises(PermissionDenied) as told:
            await replayed(relay)

        assert told.value.hint == f'GRANT SELECT ON "public"."outbox" TO "{reader}"'


async def test_tables_and_columns_that_are_not_there_are_named(plain: Source) -> None:
    await plain.execute("CREATE VIEW public.looks AS SELECT * FROM outbox")
    missing = relay_source(plain, tables=(TableName("public", "outbx"),))
    view = relay_source(plain, tables=(TableName("public", "looks"),))
    column = relay_source(plain, columns=Columns(key=("customer",)))

    with pytest.raises(RequirementMissing, match=r"public\.outbx does not exist"):
        await replayed(missing)
    with pytest.raises(RequirementMissing, match=r"public\.looks is no table"):
        await replayed(view)
    with pytest.raises(ColumnMissing, match="has no column 'customer'"):
        await replayed(column)


async def test_only_columns_that_are_streamed_are_taken(plain: Source) -> None:
    """Of two names for a role, the stream has the first that it carries."""
    await plain.execute(
        "ALTER TABLE outbox ADD made text GENERATED ALWAYS AS ('made-' || aggregateid)"
        " STORED"
    )
    await plain.insert_event("order", "k")
    relay = relay_source(plain, columns=Columns(key=("made", "aggregateid")))

    assert keys(await replayed(relay)) == ["k"]
    if plain.version == "18":
        await plain.execute(
            f"ALTER PUBLICATION {plain.publication}"
            " SET (publish_generated_columns = stored)"
        )
        assert keys(await replayed(relay)) == ["made-k"]


async def test_a_snapshot_whose_exporter_is_gone_is_named(plain: Source) -> None:
    relay = relay_source(plain)
    async with await connect(relay.target) as connection:
        with pytest.raises(ServerRefused, match="snapshot 00000003-1 is gone"):
            async with open_snapshot(connection, "00000003-1"):
                pytest.fail("it was opened")
        # The connection is as it was.
        async with open_snapshot(connection, None) as snapshot:
            assert await events_of(snapshot, relay, Bounds()) == []
