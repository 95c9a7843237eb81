"""Questions to the server that end in bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from slots.connect import answer_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

Answer = TypeVar("Answer")

ANSWER_LIMIT_S: Final = 60.0
SCAN_LIMIT_S: Final = 3600.0
"""A server that reads and sorts a big table says nothing until it has; a dead one is
found by TCP keepalive."""


async def bounded(
    question: Coroutine[Any, Any, Answer],
    connection: AsyncConnection[TupleRow],
    *,
    limit_s: float = ANSWER_LIMIT_S,
) -> Answer:
    """Return the answer; raise ServerUnavailable after ``limit_s``.

    Out of time, or cancelled, the connection is cut.
    """
    info = connection.info
    where = f"{info.host}:{info.port}/{info.dbname}"
    return await answer_of(question, connection, limit_s=limit_s, where=where)
