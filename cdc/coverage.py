"""Whether the stream still carries every row, looked at while it runs.

Postgres 15 and later say nothing when a table leaves the publication, and no version
says so when it comes back: rows committed in between never arrive.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import structlog

from cdc.position import changed_publication
from cdc.requirements import still_covered
from cdc.requirements.history import fingerprint, sample
from slots.connect import address, answer_of, connect
from slots.errors import ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.keeper import PositionKeeper
    from cdc.position import Position
    from cdc.requirements import SourceFacts, Wanted
    from slots.connect import Target

_SAMPLE_S: Final = 2.0
"""Between two samples of the server's transactions, or the status interval where that
is less: rows of so long are looked at again after a loss."""

_ANSWER_LIMIT_S: Final = 30.0

_log = structlog.get_logger("cdc.coverage")


class Coverage:
    """Looks at the catalog again and again.

    Args:
        target: the server, and how to get in.
        wanted: publication, tables and columns.
        interval_s: at most this long between two looks at all of it.

    """

    def __init__(self, target: Target, wanted: Wanted, *, interval_s: float) -> None:
        self._target = target
        self._wanted = wanted
        self._interval_s = interval_s

    async def watch(self, facts: SourceFacts, keeper: PositionKeeper) -> None:
        """Look until cancelled; give samples of transactions to the keeper.

        Raises:
            RequirementMissing: rows or columns do not arrive any more.
            OperatorNeeded: some may have been left out.

        """
        connection: AsyncConnection[TupleRow] | None = None
        looked_at = time.monotonic()
        try:
            while True:
                try:
                    if connection is None or connection.closed:
                        connection = await connect(self._target)
                    await self._bounded(self._sample(connection, keeper), connection)
                    if time.monotonic() - looked_at >= self._interval_s:
                        looked_at = time.monotonic()
                        whole = still_covered(connection, self._wanted, facts)
                        await self._bounded(whole, connection)
                except ServerUnavailable:
                    # The stream will notice by itself if the server is really away.
                    _log.debug("coverage_not_checked")
                await asyncio.sleep(min(_SAMPLE_S, self._interval_s))
        finally:
            if connection is not None:
                await connection.close()

    async def look(
        self, connection: AsyncConnection[TupleRow], position: Position
    ) -> None:
        """Raise PositionMismatch when the publication is not as it was."""
        seen = await fingerprint(connection, self._wanted)
        changed = changed_publication(position, seen, goes_on_at=position.end_lsn)
        if changed is not None:
            raise changed

    async def _sample(
        self, connection: AsyncConnection[TupleRow], keeper: PositionKeeper
    ) -> None:
        # Sampled first: a horizon is made only of moments before which, as is seen
        # after them, every row was to come.
        taken = await sample(connection)
        await self.look(connection, keeper.position)
        if taken is not None:
            keeper.sampled(taken)

    async def _bounded(
        self, question: Coroutine[Any, Any, None], connection: AsyncConnection[TupleRow]
    ) -> None:
        await answer_of(
            question,
            connection,
            limit_s=_ANSWER_LIMIT_S,
            where=address(self._target),
        )
