"""A connection pooler between us and the server."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from cdc.finding import Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.requirements.stage import Stage

pytestmark = pytest.mark.postgres

BACKEND_KEY_DATA = b"K"
READY = b"Z"


@asynccontextmanager
async def pooler_in_front_of(host: str, port: int) -> AsyncIterator[int]:
    """Answer as poolers do: with a process id of one's own in BackendKeyData."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(copy(reader, up_writer))
                await invent_process_id(up_reader, writer)
                both.create_task(copy(up_reader, writer))
        except* OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def invent_process_id(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    kind = b""
    while kind != READY:
        head = await reader.readexactly(5)
        kind, size = head[:1], struct.unpack("!I", head[1:])[0]
        body = await reader.readexactly(size - 4)
        if kind == BACKEND_KEY_DATA:
            body = struct.pack("!I", 4_000_000) + body[4:]
        writer.write(head + body)
    await writer.drain()


async def test_a_pooler_is_recognised_by_the_process_id_it_invents(
    stage: Stage,
) -> None:
    assert (await stage.finding("postgres.direct")).status is Status.OK
    host, port = stage.source.host_and_port
    async with pooler_in_front_of(host, port) as pooler_port:
        # Encryption would be asked for first, in a form this pooler does not speak.
        stage.dsn = make_conninfo(
            stage.dsn, port=pooler_port, sslmode="disable", gssencmode="disable"
        )

        found = await stage.finding("postgres.direct")

    assert found.status is Status.WARNING
    assert f"127.0.0.1:{pooler_port}" in found.detail
    assert "CDC_POSTGRES__DSN" in found.remedy
