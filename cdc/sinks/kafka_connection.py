"""The client library's connections without a producer or a consumer around them.

For who only asks and reads: no group is joined, and no right to write is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from cdc.errors import CdcError, SettingsError, SinkDenied, SinkUnavailable
from cdc.sinks.kafka_log import quieten
from cdc.sinks.kafka_options import client_arguments
from cdc.sinks.kafka_outcomes import named
from cdc.sinks.kafka_producer import why_unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cdc.sinks.kafka_options import KafkaOptions

_NO_BROKER: Final = "it answers, and names no broker"


async def connect(options: KafkaOptions) -> Any:
    """Return a client that knows the brokers.

    Raises:
        SinkDenied: we are not let in, or a file or a token cannot be had.
        SinkUnavailable: nobody answers within ``start_timeout_s``.

    """
    quieten()
    where = f"Kafka at {options.bootstrap_servers}"
    try:
        client = AIOKafkaClient(**client_arguments(options))
    except SettingsError as exc:
        # They were right when the settings were read: a file is being replaced.
        raise SinkDenied(str(exc), hint=exc.hint) from exc
    try:
        async with asyncio.timeout(options.start_timeout_s):
            await client.bootstrap()
    except BaseException as exc:
        await close(client, options)
        if isinstance(exc, TimeoutError):
            raise SinkUnavailable(
                f"{where} did not answer within {options.start_timeout_s:g} s"
            ) from exc
        if not isinstance(exc, Exception):
            raise
        raise await _why(options, named(exc, where)) from exc
    if not client.cluster.brokers():
        # What the library makes of a refused token, too.
        await close(client, options)
        raise await _why(options, SinkUnavailable(f"{where}: {_NO_BROKER}"))
    return client


async def close(client: Any, options: KafkaOptions) -> None:
    """Disconnect within ``close_timeout_s``."""
    # uvloop may raise for a handle that is closed already.
    with contextlib.suppress(OSError, RuntimeError, KafkaError):
        async with asyncio.timeout(options.close_timeout_s):
            await client.close()


@contextlib.asynccontextmanager
async def connected(options: KafkaOptions) -> AsyncIterator[Any]:
    """Connect, and disconnect at the end; raise what :func:`connect` raises."""
    client = await connect(options)
    try:
        yield client
    finally:
        await close(client, options)


async def _why(options: KafkaOptions, error: CdcError) -> CdcError:
    """Say what the library does not: why no server could be used."""
    if not isinstance(error, SinkUnavailable):
        return error
    return await why_unreachable(options) or error
