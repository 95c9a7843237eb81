"""Pruning beside the relay, a round now and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from cdc.retention.pruning import prune
from slots.connect import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from cdc.outbox import TableName
    from cdc.retention.pruning import Retention
    from slots.connect import Target

_log = structlog.get_logger("cdc.retention")


class Pruning:
    """Prunes in rounds; a round that fails is told, and never ends the relay.

    Args:
        target: the server, and how to get in.
        tables: the outbox tables.
        retention: what is kept.
        interval_s: between two rounds.
        horizon: asked at each round; None while nothing is certain.

    """

    def __init__(
        self,
        target: Target,
        tables: Sequence[TableName],
        retention: Retention,
        *,
        interval_s: float,
        horizon: Callable[[], int | None],
    ) -> None:
        self._target = target
        self._tables = tables
        self._retention = retention
        self._interval_s = interval_s
        self._horizon = horizon
        self._warned: dict[TableName, list[str]] = {}

    async def run(self) -> NoReturn:
        """Prune until cancelled; whole batches are kept then."""
        while True:
            await asyncio.sleep(self._interval_s)
            for table in self._tables:
                try:
                    await self._round(table)
                except Exception as exc:  # noqa: BLE001 - told, and tried again
                    hint = getattr(exc, "hint", "")
                    _log.warning(
                        "prune_failed", table=str(table), reason=str(exc), remedy=hint
                    )

    async def _round(self, table: TableName) -> None:
        horizon = self._horizon()
        if horizon is None:
            return
        async with await connect(self._target) as connection:
            (done,) = await prune(connection, [table], self._retention, horizon=horizon)
        for warning in done.warnings:
            if warning not in self._warned.get(table, []):
                _log.warning("prune_hindered", reason=warning)
        # What has gone and comes back is said again.
        self._warned[table] = done.warnings
        if done.deleted or done.dropped:
            _log.info("pruned", **done.facts())
