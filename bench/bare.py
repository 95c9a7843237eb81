"""The bare round trips that latency is held against: nobody can be faster."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import time
import uuid
from typing import TYPE_CHECKING, Final

import psycopg
from aiokafka import AIOKafkaProducer

from bench.events import PAYLOAD_BYTES
from bench.figures import Percentiles, percentiles
from bench.recvlogical import reading
from bench.writer import INSERT

if TYPE_CHECKING:
    from bench.broker import Broker
    from bench.source import Source

_PER_S: Final = 200
_WARM_UP: Final = 50
_DEADLINE_S: Final = 30.0


async def bare_sends(broker: Broker, count: int) -> Percentiles:
    """Return how long one acknowledged send takes (idempotent, acks=all)."""
    topic = f"bench_{uuid.uuid4().hex[:12]}"
    payload = b"x" * PAYLOAD_BYTES
    async with broker.topics([topic]):
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.address, enable_idempotence=True, acks="all"
        )
        taken = []
        async with asyncio.timeout(_DEADLINE_S):
            await producer.start()
        try:
            for number in range(count + _WARM_UP):
                await asyncio.sleep(1 / _PER_S)
                async with asyncio.timeout(_DEADLINE_S):
                    began = time.perf_counter()
                    key = b"order-%d" % (number % 1000)
                    await producer.send_and_wait(topic, payload, key=key)
                    taken.append(time.perf_counter() - began)
        finally:
            async with asyncio.timeout(_DEADLINE_S):
                await producer.stop()
    return percentiles(taken[_WARM_UP:])


async def bare_frames(source: Source, count: int) -> Percentiles:
    """Return how long after COMMIT pg_recvlogical has handed over the row."""
    slot = f"bench_{uuid.uuid4().hex[:12]}"
    program = str(source.program("pg_recvlogical"))
    command = reading(program, source.dsn, slot, "pgoutput")
    async with source.slot(slot, "pgoutput"):
        taken = await asyncio.to_thread(_frames, command, source.dsn, count)
    return percentiles(taken)


def _frames(command: list[str], dsn: str, count: int) -> list[float]:
    reader = subprocess.Popen([*command, "-f", "-"], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    taken = []
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for number in range(1, count + _WARM_UP + 1):
                time.sleep(1 / _PER_S)
                connection.execute(INSERT, (number, number))
                returned = time.perf_counter()
                _until(reader.stdout.fileno(), b'{"n": %d,' % number)
                taken.append(time.perf_counter() - returned)
    finally:
        reader.terminate()
        reader.communicate()
    return taken[_WARM_UP:]


def _until(descriptor: int, wanted: bytes) -> None:
    """Read until it has come."""
    deadline = time.monotonic() + _DEADLINE_S
    seen = b""
    while wanted not in seen:
        if not select.select([descriptor], [], [], deadline - time.monotonic())[0]:
            raise TimeoutError("pg_recvlogical hands over no row")
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            raise EOFError("pg_recvlogical ended")
        seen += piece
