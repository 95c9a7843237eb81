"""Rows of the table published again, beside a relay that goes on with its slot."""

from __future__ import annotations

import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc.claim import stored_position
from cdc.errors import SettingsError
from cdc.known_ids import KnownIds
from cdc.position import horizon_at
from cdc.republishing import Progress, Republisher
from cdc.snapshot import Bounds, open_snapshot, parse_since
from slots.connect import connect
from slots.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.session import Source
    from cdc.sinks import PositionStore, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which rows are to be published again; at least one bound.

    Attributes:
        since: a time, an id or an LSN; None from the oldest row on.
        until: likewise; None up to now.
        key: only events with this key.
        dry_run: only count.

    """

    since: str | None = None
    until: str | None = None
    key: str | None = None
    dry_run: bool = False


async def replay(
    source: Source,
    sink: Sink,
    store: PositionStore,
    wish: Wish,
    told: Callable[[Progress], None],
) -> tuple[str, Progress]:
    """Publish the rows again; return the run's id, which they carry, and what was done.

    Raises:
        SettingsError: a bound cannot be read, or no sample is as old as an LSN.

    """
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    async with AsyncExitStack() as stack:
        connection = await connect(source.target)
        stack.push_async_callback(connection.close)
        bounds = await _bounds(source, store, wish)
        if not wish.dry_run:
            await stack.enter_async_context(sink)
        snapshot = await stack.enter_async_context(open_snapshot(connection, None))
        known = stack.enter_context(KnownIds(None, since_ms=0))
        republisher = Republisher(
            None if wish.dry_run else sink,
            known,
            window_bytes=source.window_bytes,
            told=told,
        )
        republisher.progress.began_at = time.monotonic()
        republisher.progress.total = await snapshot.count(
            source.wanted, source.mapping, bounds
        )
        pieces = snapshot.events(source.wanted, source.mapping, bounds, run_id=run_id)
        return run_id, await republisher.publish(pieces)


async def _bounds(source: Source, store: PositionStore, wish: Wish) -> Bounds:
    since = None if wish.since is None else parse_since(wish.since)
    until = None if wish.until is None else parse_since(wish.until)
    horizon = None
    if since is not None and isinstance(since.value, Lsn):
        horizon = await _horizon(source, store, since.value)
        since = None
    if until is not None and isinstance(until.value, Lsn):
        raise SettingsError(
            "--until takes a time or an id",
            hint="a transaction that was open at an LSN is on neither side of it",
        )
    return Bounds(horizon=horizon, since=since, until=until, key=wish.key)


async def _horizon(source: Source, store: PositionStore, lsn: Lsn) -> int:
    async with store:
        known = await stored_position(store, source.name)
    horizon = None if known is None else horizon_at(known, lsn)
    if horizon is None:
        raise SettingsError(
            f"--since {lsn}: no sample of transactions is as old as that",
            hint="give a time: cdc replay --since 2026-01-31T12:00:00Z",
        )
    return horizon
