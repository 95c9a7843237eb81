"""What the relay asks of a replication stream; :mod:`cdc.testing` has one by script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from cdc.errors import CdcError
    from cdc.wal.frames import Frame
    from slots.lsn import Lsn


class FrameStream(Protocol):
    """A started replication stream, as far as the relay cares."""

    ended: asyncio.Event
    failure: CdcError | None

    @property
    def confirmed(self) -> Lsn:
        """The position last confirmed."""
        ...

    async def read(self) -> list[Frame]:
        """Wait for frames and take all; empty when interrupted."""
        ...

    def interrupt(self) -> None:
        """Make a waiting read return."""
        ...

    def received(self, position: Lsn) -> None:
        """Take note of a position read from a commit."""
        ...

    def confirm(self, position: Lsn) -> None:
        """Let the server forget what lies before a position."""
        ...

    async def finish(self, *, limit_s: float) -> None:
        """Tell the last position and end in order."""
        ...
