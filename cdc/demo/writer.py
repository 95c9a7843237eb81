"""The demo's service: business rows and outbox rows in the same transactions."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_TRANSACTIONS: Final = 1_000
LARGE_TRANSACTION_EVENTS: Final = 10_000
_EVERY_ROLLBACK: Final = 10
_EVERY_SAVEPOINT: Final = 7
_ORDERS_PER_TRANSACTION: Final = 3
_PAUSE_S: Final = 0.004
"""Between two small transactions: slow enough to be watched."""

BUSINESS_TABLE: Final = """
CREATE TABLE public.orders (
    id uuid PRIMARY KEY, customer text NOT NULL, total_cents bigint NOT NULL
)"""

_ORDER: Final = "INSERT INTO public.orders VALUES (%s, %s, %s)"
_EVENT: Final = (
    "INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)"
    " VALUES (%s, 'order', %s, 'OrderPlaced', jsonb_build_object('cents', %s::bigint))"
)
_MANY_EVENTS: Final = (
    "INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)"
    " SELECT pg_catalog.gen_random_uuid(), 'order', 'bulk-' || n %% 100,"
    " 'OrderImported', jsonb_build_object('n', n)"
    " FROM pg_catalog.generate_series(1, %s) AS n"
    " RETURNING id"
)


@dataclass(slots=True)
class Written:
    """What the service has done so far.

    Attributes:
        committed: ids of the events of committed transactions, in commit order.
        rolled_back: ids of events that must never be seen.
        is_done: whether it has finished.

    """

    committed: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    is_done: bool = False


async def write(dsn: str, written: Written) -> None:
    """Commit, roll back and use savepoints, and once write a very large transaction."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        for number in range(SMALL_TRANSACTIONS):
            await _small(connection, number, written)
            if number == SMALL_TRANSACTIONS // 2:
                await _large(connection, written)
            await asyncio.sleep(_PAUSE_S)
    written.is_done = True


async def _small(
    connection: psycopg.AsyncConnection, number: int, written: Written
) -> None:
    kept = await _orders(connection, f"customer-{number % 50}")
    given_up: Sequence[str] = ()
    if number % _EVERY_SAVEPOINT == 0:
        await connection.execute("SAVEPOINT attempt")
        given_up = await _orders(connection, "changed-my-mind")
        await connection.execute("ROLLBACK TO SAVEPOINT attempt")
    if number % _EVERY_ROLLBACK == 0:
        await connection.rollback()
        written.rolled_back.extend(kept)
    else:
        await connection.commit()
        written.committed.extend(kept)
    written.rolled_back.extend(given_up)


async def _orders(connection: psycopg.AsyncConnection, customer: str) -> list[str]:
    ids = []
    for cents in range(1, _ORDERS_PER_TRANSACTION + 1):
        order, event = str(uuid.uuid4()), str(uuid.uuid4())
        await connection.execute(_ORDER, (order, customer, cents))
        await connection.execute(_EVENT, (event, customer, cents))
        ids.append(event)
    return ids


async def _large(connection: psycopg.AsyncConnection, written: Written) -> None:
    cursor = await connection.execute(_MANY_EVENTS, (LARGE_TRANSACTION_EVENTS,))
    ids = [str(row[0]) for row in await cursor.fetchall()]
    await connection.commit()
    written.committed.extend(ids)


def total_events() -> int:
    """Return how many events a whole run commits."""
    rolled_back = -(-SMALL_TRANSACTIONS // _EVERY_ROLLBACK)
    small = (SMALL_TRANSACTIONS - rolled_back) * _ORDERS_PER_TRANSACTION
    return small + LARGE_TRANSACTION_EVENTS
