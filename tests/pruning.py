"""Pruning in tests, and the rows for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from cdc.outbox import TableName
from cdc.retention import Retention, prune
from slots.connect import Target, connect

if TYPE_CHECKING:
    from cdc.retention import TablePruned
    from tests.postgres_source import Source

TABLES = (TableName("public", "outbox"),)
HOUR = Retention(keep_s=3600.0)
INSERT = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
    " SELECT 'order', n::text, 't', now() - %s::interval FROM generate_series(1, %s) n"
)


async def pruned(
    source: Source,
    horizon: int,
    retention: Retention = HOUR,
    *,
    dry_run: bool = False,
    dsn: str | None = None,
) -> TablePruned:
    """Prune the outbox once."""
    target = Target(dsn=SecretStr(dsn or source.dsn))
    async with await connect(target) as connection:
        (done,) = await prune(
            connection, TABLES, retention, horizon=horizon, dry_run=dry_run
        )
    return done


async def certain(source: Source) -> int:
    """Return the horizon of a relay that has acknowledged all that is committed."""
    query = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
    return int(await source.value(query))


async def count(source: Source, table: str = "outbox") -> int:
    """Count rows."""
    return int(await source.value(f"SELECT count(*) FROM {table}"))
