"""Rows of a query as raw bytes, in pieces of bounded size.

A server-side cursor alone bounds memory in rows, and one row may weigh a megabyte: a
FETCH of a thousand would be a gigabyte inside libpq. So each FETCH comes in libpq's
single-row mode: what is not taken yet waits in the socket, and at the server.

The values are the text that the server prints, untouched: psycopg would parse it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from psycopg import pq
from psycopg.errors import error_from_result

from cdc.snapshot.asking import SCAN_LIMIT_S, bounded
from slots.errors import ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGresult
    from psycopg.rows import TupleRow

PIECE_BYTES: Final = 1 << 20

_CURSOR: Final = b"walferry_rows"
_FIRST_ROWS: Final = 100
_MOST_ROWS: Final = 10_000
_READS_AT_ONCE: Final = 3
"""As many as empty what OpenSSL keeps back of a record, which the socket does not
tell."""

Values = tuple[bytes | None, ...]


async def pieces(
    connection: AsyncConnection[TupleRow],
    query: bytes,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> AsyncGenerator[list[Values], None]:
    """Yield a query's rows, in order, in lists of ``piece_bytes`` or one row more.

    Args:
        connection: inside a transaction. Nothing else may use it until the end, and it
            is of no more use when this is left before.
        query: a SELECT.
        piece_bytes: of values.

    Raises:
        psycopg.Error: the server said no, or the line broke.
        ServerUnavailable: it was silent for too long.

    """
    declare = b"DECLARE %b NO SCROLL CURSOR FOR %b" % (_CURSOR, query)
    await bounded(connection.execute(declare), connection)
    count = _FIRST_ROWS
    while True:
        rows: list[Values] = []
        size_bytes = row_count = fetched_bytes = 0
        async with aclosing(_fetch(connection.pgconn, count)) as fetched:
            async for row, row_bytes in fetched:
                rows.append(row)
                row_count += 1
                size_bytes += row_bytes
                fetched_bytes += row_bytes
                if size_bytes >= piece_bytes:
                    yield rows
                    rows, size_bytes = [], 0
        if rows:
            yield rows
        if row_count < count:
            break
        # As many as make a piece, so that little is under way when it is left early.
        average = max(1, fetched_bytes // row_count)
        count = min(max(piece_bytes // average, 1), _MOST_ROWS, count * 10)
    await bounded(connection.execute(b"CLOSE " + _CURSOR), connection)


async def _fetch(
    pgconn: pq.abc.PGconn, count: int
) -> AsyncGenerator[tuple[Values, int], None]:
    pgconn.send_query(b"FETCH FORWARD %d FROM %b" % (count, _CURSOR))
    pgconn.set_single_row_mode()
    if pgconn.flush():
        raise ServerUnavailable("the connection does not take a short query")
    while True:
        if pgconn.is_busy():
            await _filled(pgconn)
        result = pgconn.get_result()
        if result is None:
            return
        if result.status == pq.ExecStatus.SINGLE_TUPLE:
            yield _row(result)
        elif result.status != pq.ExecStatus.TUPLES_OK:
            raise error_from_result(result)


def _row(result: PGresult) -> tuple[Values, int]:
    get_value = result.get_value
    row = tuple([get_value(0, index) for index in range(result.nfields)])
    return row, sum([len(value) for value in row if value is not None])


async def _filled(pgconn: pq.abc.PGconn) -> None:
    """Return once libpq holds a whole result."""
    while True:
        for _ in range(_READS_AT_ONCE):
            pgconn.consume_input()
            if not pgconn.is_busy():
                return
        await _readable(pgconn.socket)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(SCAN_LIMIT_S):
            await ready.wait()
    except TimeoutError as exc:
        raise ServerUnavailable(
            f"the server has said nothing for {SCAN_LIMIT_S:g} s"
        ) from exc
    finally:
        loop.remove_reader(descriptor)
