"""A time limit for an answer, kept even when the server has gone silent.

Cancelling psycopg's wait does not do: it first asks the server, over another
connection, to cancel the query, and waits for that; beside a silent server that took
more than ten seconds. Here the line is cut instead, on our side, and psycopg finds it
lost at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, TypeVar

from slots.errors import ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

Answer = TypeVar("Answer")


async def answer_of(
    question: Coroutine[Any, Any, Answer],
    connection: AsyncConnection[TupleRow],
    *,
    limit_s: float,
    where: str,
) -> Answer:
    """Await what is asked over a connection; cut that when it takes too long.

    Being cancelled cuts it, too: nobody waits for a silent server then.

    Args:
        question: uses the connection, and nothing else that could hang.
        connection: of no use any more once it was cut.
        limit_s: for the answer.
        where: the server's address, for the message.

    Raises:
        ServerUnavailable: the time was up.

    """
    asking = asyncio.create_task(question, name="question")
    try:
        await asyncio.wait({asking}, timeout=limit_s)
    finally:
        is_late = not asking.done()
        if is_late:
            _cut(connection.pgconn.socket)
            await asyncio.gather(asking, return_exceptions=True)
    if is_late:
        raise ServerUnavailable(f"{where}: no answer within {limit_s:g} s")
    return asking.result()


def _cut(descriptor: int) -> None:
    # Shut down, not closed: psycopg still waits for it, and closes it itself.
    with (
        contextlib.suppress(OSError),
        socket.socket(fileno=os.dup(descriptor)) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
