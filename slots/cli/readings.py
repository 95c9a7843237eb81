"""Readings for commands that look once, or twice to know a rate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from slots import catalog
from slots.connect import address, answer_of, connect
from slots.errors import ServerUnavailable, SlotMissing
from slots.state import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from slots.connect import Target
    from slots.state import Reading, Slot

CONNECT_TIMEOUT_S: Final = 10.0
LIMIT_S: Final = 10.0


async def look(
    target: Target, *, sample_s: float, limit_s: float = LIMIT_S
) -> tuple[Reading, History]:
    """Read once, and again after a while: a rate takes two readings.

    Args:
        target: the server.
        sample_s: the while; 0 for one reading, without a rate.
        limit_s: to connect, and then again for the readings, the while left out.

    Raises:
        ServerUnavailable: nobody there, or the time was up.

    """
    where = address(target)
    try:
        async with asyncio.timeout(limit_s):
            connection = await connect(target, timeout_s=limit_s)
    except TimeoutError:
        raise ServerUnavailable(f"{where}: no answer within {limit_s:g} s") from None
    async with connection:
        return await answer_of(
            look_through(connection, sample_s=sample_s),
            connection,
            limit_s=limit_s + sample_s,
            where=where,
        )


async def look_through(
    connection: AsyncConnection[TupleRow], *, sample_s: float
) -> tuple[Reading, History]:
    """Do the same over a connection that is there."""
    history = History(is_continuous=False)
    reading = await catalog.read(connection)
    history.observe(reading)
    if sample_s > 0:
        await asyncio.sleep(sample_s)
        reading = await catalog.read(connection)
        history.observe(reading)
    return reading, history


def chosen(reading: Reading, names: Sequence[str] | None) -> list[Slot]:
    """Return the slots of these names; all of them for none.

    Raises:
        SlotMissing: there is none of one of the names.

    """
    if not names:
        return list(reading.slots)
    return [the_slot(reading, name) for name in names]


def the_slot(reading: Reading, name: str) -> Slot:
    """Return a slot.

    Raises:
        SlotMissing: there is none of that name.

    """
    slot = reading.slot(name)
    if slot is None:
        there = ", ".join(one.name for one in reading.slots) or "none"
        raise SlotMissing(f"slot {name} does not exist", hint=f"there are: {there}")
    return slot
