"""A proxy that knows Kafka: it answers produce requests with an error of our choice.

The broker takes the records all the same, as one does whose answer says otherwise; a
test of a true refusal sets the topic up so that the broker itself refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Self

_LOOPBACK = "127.0.0.1"
_PRODUCE = 0
_ERROR_AT = 4
_TOOK_IT = 0
# Of one partition that took its records. Partition, error, offset and append time; from
# version 5 on the log's start; from 8 on record errors (none) and a message (null).
_PARTITION_SIZES = {2: 22, 3: 22, 4: 22, 5: 30, 6: 30, 7: 30, 8: 36}


class KafkaProxy:
    """Stands between clients and one broker, which advertises it."""

    def __init__(self, port: int, *, listen_port: int) -> None:
        self._target = port
        self._port = listen_port
        self._codes: list[int] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, _LOOPBACK, self._port)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """Host and port, as Kafka writes them."""
        return f"{_LOOPBACK}:{self._port}"

    def fail_produce(self, *codes: int) -> None:
        """Answer as many of the next produce requests with these error codes."""
        self._codes.extend(codes)

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        produce: dict[int, int] = {}
        up_writer: asyncio.StreamWriter | None = None
        try:
            up_reader, up_writer = await asyncio.open_connection(
                _LOOPBACK, self._target
            )
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._requests(reader, up_writer, produce))
                pumps.create_task(self._answers(up_reader, writer, produce))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one side is gone: the other learns of it below
        finally:
            for one in (writer, up_writer):
                if one is not None:
                    one.transport.abort()
            self._tasks.discard(task)

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        produce: dict[int, int],
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == _PRODUCE:
                assert version in _PARTITION_SIZES
                produce[correlation] = version
            await _pass_on(writer, frame)

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        produce: dict[int, int],
    ) -> None:
        while True:
            frame = bytearray(await _frame(reader))
            (correlation,) = struct.unpack_from(">i", frame)
            version = produce.pop(correlation, None)
            if version is not None and self._codes:
                _set_errors(frame, version, self._codes.pop(0))
                self.failed += 1
            await _pass_on(writer, frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes | bytearray) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
    with contextlib.suppress(ConnectionError):
        await writer.drain()


def _set_errors(frame: bytearray, version: int, code: int) -> None:
    """Set the error code of every partition in a produce response."""
    (topics,) = struct.unpack_from(">i", frame, 4)
    at = 8
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", frame, at)
        at += 2 + length
        (partitions,) = struct.unpack_from(">i", frame, at)
        at += 4
        for _ in range(partitions):
            assert struct.unpack_from(">h", frame, at + _ERROR_AT) == (_TOOK_IT,)
            struct.pack_into(">h", frame, at + _ERROR_AT, code)
            at += _PARTITION_SIZES[version]
