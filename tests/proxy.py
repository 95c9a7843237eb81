"""A TCP proxy on loopback that can cut, stall, delay and crumble what it carries."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from dataclasses import dataclass, field
from typing import Self

_LOOPBACK = "127.0.0.1"
_PIECE = 64 * 1024


class Direction(enum.Enum):
    """Which way bytes go."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


BOTH = tuple(Direction)


@dataclass(slots=True)
class _Lane:
    """How one direction behaves at the moment, in every connection."""

    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    chunk: int = _PIECE
    carried: int = 0


class Proxy:
    """Stands between clients and one server.

    Everything takes effect at once on open connections and on new ones.
    """

    def __init__(self, host: str, port: int, *, listen_port: int = 0) -> None:
        self._target = (host, port)
        self.port = listen_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._lanes = {direction: _Lane() for direction in Direction}
        self.accepted = 0
        self.resume()

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.cut()

    @property
    def host(self) -> str:
        """Where it listens."""
        return _LOOPBACK

    @property
    def address(self) -> str:
        """Host and port, as Kafka writes them."""
        return f"{_LOOPBACK}:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many clients are connected at the moment."""
        return len(self._tasks)

    def carried(self, direction: Direction) -> int:
        """Return how many bytes have been passed on this way."""
        return self._lanes[direction].carried

    async def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Reset every connection, and go on accepting new ones."""
        for writer in self._writers:
            writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def restore(self) -> None:
        """Accept connections (again), on the same port."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, _LOOPBACK, self.port, limit=_PIECE
            )
            self.port = self._server.sockets[0].getsockname()[1]

    def stall(self, *directions: Direction) -> None:
        """Let nothing through (this way), and keep the connections open."""
        for direction in directions or BOTH:
            self._lanes[direction].is_open.clear()

    def resume(self, *directions: Direction) -> None:
        """Let through again, beginning with what was held back."""
        for direction in directions or BOTH:
            self._lanes[direction].is_open.set()

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Hold every piece back for a time before it is passed on."""
        for direction in directions or BOTH:
            self._lanes[direction].delay_s = seconds

    def chunk(self, size: int, *directions: Direction) -> None:
        """Pass on at most this many bytes with one write."""
        for direction in directions or BOTH:
            self._lanes[direction].chunk = size

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        opened = [writer]
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(
                *self._target, limit=_PIECE
            )
            opened.append(up_writer)
            self._writers.add(up_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, up_writer, Direction.TO_SERVER))
                pumps.create_task(self._pump(up_reader, writer, Direction.TO_CLIENT))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one side is gone: the other learns of it below
        finally:
            for one in opened:
                self._writers.discard(one)
                one.transport.abort()
            self._tasks.discard(task)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
    ) -> None:
        lane = self._lanes[direction]
        while data := await reader.read(_PIECE):
            if lane.delay_s:
                await asyncio.sleep(lane.delay_s)
            for start in range(0, len(data), lane.chunk):
                await lane.is_open.wait()
                piece = data[start : start + lane.chunk]
                writer.write(piece)
                await writer.drain()
                lane.carried += len(piece)
        await lane.is_open.wait()
        with contextlib.suppress(OSError):
            writer.write_eof()
