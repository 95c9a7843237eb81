"""A session of the relay inside the test's own process, with its parts at hand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from cdc.metrics import RelayMetrics
from cdc.outbox import DEFAULT_TOPIC, Columns, Mapping, TableName, Template
from cdc.requirements import Wanted
from cdc.session import Session
from cdc.session import Source as RelaySource
from cdc.testing import MemoryPositions
from slots.connect import Target
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cdc.sinks import PositionStore, Sink
    from tests.postgres_source import Source

OUTBOX = (TableName("public", "outbox"),)


def relay_source(
    source: Source,
    *,
    dsn: str | None = None,
    tables: tuple[TableName, ...] = OUTBOX,
    columns: Columns | None = None,
    topic: str = DEFAULT_TOPIC,
    record_headers: tuple[tuple[str, Template], ...] = (),
    **options: Any,
) -> RelaySource:
    """Describe a test's database to the relay."""
    mapping = Mapping(
        columns=columns or Columns(headers=("headers",)),
        topic=Template.parse(topic),
        record_headers=record_headers,
    )
    return RelaySource(
        name=f"relay of {source.slot}",
        target=Target(dsn=SecretStr(dsn or source.dsn)),
        wanted=Wanted(
            slot=source.slot,
            plugin=source.plugin,
            publication=source.publication,
            tables=tables,
            required_columns=mapping.required_columns(),
        ),
        mapping=mapping,
        status_interval_s=options.pop("status_interval_s", 1.0),
        grace_s=options.pop("grace_s", 5.0),
        **options,
    )


@asynccontextmanager
async def running(
    source: RelaySource,
    sink: Sink,
    metrics: RelayMetrics | None = None,
    store: PositionStore | None = None,
) -> AsyncIterator[Session]:
    """Run a session while the block runs; stop it in order afterwards.

    What ends the session by itself is raised at the end of the block.
    """
    started = asyncio.Event()
    session = Session(
        source,
        sink,
        store or MemoryPositions(),
        metrics or RelayMetrics(),
        started=started.set,
    )
    task = asyncio.create_task(session.run(), name="relay session")
    try:
        await eventually(
            lambda: started.is_set() or task.done(), 20.0, what="the session streams"
        )
        if task.done():
            await task
        yield session
        session.stop()
        async with asyncio.timeout(15):
            await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
