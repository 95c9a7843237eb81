"""Keeps the position: acknowledged, then stored, then confirmed to the slot.

The slot is never confirmed beyond what is stored, idle advances too. So a slot that is
found ahead of the stored position was moved by somebody else, and one that is behind it
has forgotten, which costs nothing: the repeats are dropped.

Writes are coalesced to the pace of the store. One is under way at a time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cdc.position import acknowledged, sampled
from cdc.sinks import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.position import Anchor, Position, Sample
    from cdc.sinks import PositionStore
    from slots.lsn import Lsn

_MS: Final = 1000


class PositionKeeper:
    """Stores how far the relay is, and then lets the slot follow.

    Args:
        store: entered.
        position: what was stored last, under this start's own term.

    Attributes:
        confirm: called with each position that is stored; the slot may move there.

    """

    def __init__(self, store: PositionStore, position: Position) -> None:
        self._store = store
        self._stored = position
        self._target = position.end_lsn
        self._anchor = position.anchor
        self._written_at = float("-inf")
        self._changed = asyncio.Event()
        self._is_closed = False
        self.confirm: Callable[[Lsn], None] = _nobody

    @property
    def position(self) -> Position:
        """What is stored, with the samples that the next write takes along."""
        return self._stored

    def moved(self, end_lsn: Lsn, anchor: Anchor | None) -> None:
        """Take note of what is acknowledged.

        Args:
            end_lsn: everything up to here is.
            anchor: the last transaction with events among it; None leaves it.

        """
        if end_lsn <= self._stored.end_lsn:
            # A slot that has forgotten catches up with what is stored already.
            self.confirm(end_lsn)
            return
        self._target = end_lsn
        if anchor is not None:
            self._anchor = anchor
        self._changed.set()

    def sampled(self, sample: Sample) -> None:
        """Take a sample along with the next write; it is no reason for one."""
        self._stored = sampled(self._stored, sample)

    def close(self) -> None:
        """Have :meth:`run` return once the write that is under way is done.

        Cancelled instead, it would cost the store its connection, and the last write
        a new one.
        """
        self._is_closed = True
        self._changed.set()

    async def run(self) -> None:
        """Store in the pace of the store until closed; raise what the store raises."""
        while not self._is_closed:
            wait_s = self._wait_s()
            if wait_s is not None and wait_s <= 0:
                await self._write()
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def finish(self) -> None:
        """Store what is acknowledged and not stored yet, whatever the pace."""
        if self._target > self._stored.end_lsn:
            await self._write()

    def _wait_s(self) -> float | None:
        """Return how long to wait for the next write; None when there is no reason."""
        moved_by = self._target - self._stored.end_lsn
        if moved_by <= 0:
            return None
        pace = self._store.pace
        pause_s = pace.events_s
        if self._anchor == self._stored.anchor:
            if moved_by < pace.idle_bytes:
                return None
            pause_s = pace.idle_s
        return self._written_at + pause_s - time.monotonic()

    async def _write(self) -> None:
        position = acknowledged(
            replace(
                self._stored,
                anchor=self._anchor,
                stored_at_ms=time.time_ns() // _MS // _MS,
            ),
            self._target,
        )
        await self._store.write(Kept(position.name, position.term, position.document()))
        self._written_at = time.monotonic()
        # Samples may have come meanwhile.
        self._stored = replace(position, samples=self._stored.samples)
        self.confirm(position.end_lsn)


def _nobody(_position: Lsn) -> None:
    return
