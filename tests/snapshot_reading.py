"""Read a test's outbox table as the product does it."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from cdc.snapshot import Bounds, open_snapshot
from slots.connect import Target, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cdc.outbox import Event
    from cdc.session import Source as RelaySource
    from cdc.snapshot import Snapshot

OURS = {"cdc.position", "cdc.xid", "cdc.last", "cdc.replay"}


@asynccontextmanager
async def opened(
    relay: RelaySource, name: str | None = None, *, dsn: str | None = None
) -> AsyncIterator[Snapshot]:
    """Open a snapshot of a test's database on a connection of its own."""
    target = relay.target if dsn is None else Target(dsn=SecretStr(dsn))
    async with (
        await connect(target) as connection,
        open_snapshot(connection, name) as snapshot,
    ):
        yield snapshot


async def events_of(
    snapshot: Snapshot, relay: RelaySource, bounds: Bounds, **options: Any
) -> list[Event]:
    """Return the rows inside the bounds as events; they have to be as many as counted.

    Every option is one of ``Snapshot.events``.
    """
    options = {"run_id": "r-1"} | options
    events: list[Event] = []
    reading = snapshot.events(relay.wanted, relay.mapping, bounds, **options)
    async with aclosing(reading) as pieces:
        async for piece in pieces:
            events += piece
    options = {name: value for name, value in options.items() if name == "time_column"}
    counted = await snapshot.count(relay.wanted, relay.mapping, bounds, **options)
    assert counted == len(events)
    return events


async def replayed(
    relay: RelaySource, bounds: Bounds | None = None, **options: Any
) -> list[Event]:
    """Return the rows inside the bounds, as a snapshot of now shows them."""
    async with opened(relay) as snapshot:
        return await events_of(snapshot, relay, bounds or Bounds(), **options)


def keys(events: list[Event]) -> list[str]:
    """Return the events' keys as text."""
    return [(event.key or b"").decode() for event in events]


def without_marks(event: Event) -> tuple[object, ...]:
    """Return what does not depend on how the event was read."""
    headers = [pair for pair in event.headers if pair[0] not in OURS]
    return (*event[:4], headers, event.partition_key)
