"""A producer that can be thrown away at any moment, whatever the broker does.

What the client library leaves to us, found by experiment with aiokafka 0.14.0:

- ``stop()`` flushes, so it does not return while the broker is away, and a task of it
  stays behind. We never call it: sender, requests and sockets are ended one by one.
- After a batch that failed for good, whatever is queued for its partition is sent all
  the same; on a partition without earlier records of this producer the broker even
  takes it. :meth:`Producer.halt` therefore has to be called in the same turn of the
  event loop that learns of the failure, before the sender runs again.
- Idempotent batches never expire, and a full queue is waited for by an unrelated limit:
  the time limit is an argument here.
- Sequence numbers wrap to a negative number after 2**31 records of a partition.
- Starting says only that no server could be used; why is found out by connecting again.

With :mod:`cdc.sinks.kafka_record_batch` this is the only module that reaches into the
library's private parts; pyproject.toml holds it to one minor version, and the tests of
this module to its behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)
from aiokafka.protocol.metadata import MetadataRequest

from cdc.errors import (
    CdcError,
    SettingsError,
    SinkDenied,
    SinkUnavailable,
    SinkUncertain,
)
from cdc.sinks.kafka_log import quieten
from cdc.sinks.kafka_options import client_arguments, producer_arguments
from cdc.sinks.kafka_outcomes import named
from cdc.sinks.kafka_record_batch import RecordBatch

if TYPE_CHECKING:
    from cdc.sinks.kafka_batches import Shipment
    from cdc.sinks.kafka_options import KafkaOptions

MAX_SEQUENCE: Final = (1 << 31) - (1 << 26)
"""Records of one partition after which a producer is worn: 2**31 less what may be on
its way when that is noticed."""

_WHY_LIMIT_S: Final = 5.0


class Producer:
    """An aiokafka producer, from start to throwing away.

    Args:
        options: how to reach the cluster.

    Attributes:
        is_worn: sequence numbers are about to run out; another one has to take over.

    """

    def __init__(self, options: KafkaOptions) -> None:
        quieten()
        self._options = options
        try:
            arguments = producer_arguments(options)
        except SettingsError as exc:
            # They were right when the sink was made: a file is being replaced.
            raise SinkDenied(str(exc), hint=exc.hint) from exc
        self._producer = AIOKafkaProducer(**arguments)
        self._accumulator = self._producer._message_accumulator  # noqa: SLF001
        self._sender = self._producer._sender  # noqa: SLF001
        self._requests: set[asyncio.Task[Any]] = set()
        self._sent: Counter[tuple[str, int]] = Counter()
        self.is_worn = False
        self._track_requests()

    @property
    def client(self) -> Any:
        """The client library's connections and metadata."""
        return self._producer.client

    async def start(self) -> None:
        """Connect; raise SinkDenied or SinkUnavailable, naming the server."""
        where = f"Kafka at {self._options.bootstrap_servers}"
        limit_s = self._options.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await _prove_token(self._options)
                await self._producer.start()
        except BaseException as exc:
            await self.discard()
            if isinstance(exc, TimeoutError):
                raise SinkUnavailable(
                    f"{where} did not answer within {limit_s:g} s"
                ) from exc
            if not isinstance(exc, Exception):
                raise
            error = named(exc, where)
            if isinstance(error, SinkUnavailable):
                error = await why_unreachable(self._options) or error
            raise error from exc

    def new_batch(self, limit_bytes: int) -> RecordBatch:
        """Return an empty record batch that takes records up to a size.

        ``create_batch()`` knows one size for all topics.
        """
        compression = self._accumulator._compression_type  # noqa: SLF001
        return RecordBatch(limit_bytes, compression)

    async def submit(self, builder: Any, shipment: Shipment) -> asyncio.Future[Any]:
        """Queue a record batch behind those of its partition; return the answer to be.

        Raises SinkUncertain when there is no room until the shipment's deadline.
        """
        topic, partition = shipment.topic, shipment.partition
        self._sent[topic, partition] += shipment.count
        if self._sent[topic, partition] >= MAX_SEQUENCE:
            self.is_worn = True
        try:
            async with asyncio.timeout_at(shipment.deadline):
                while True:
                    with contextlib.suppress(KafkaTimeoutError):
                        answer: asyncio.Future[Any] = await self._producer.send_batch(
                            builder, topic, partition=partition
                        )
                        return answer
        except TimeoutError as exc:
            raise SinkUncertain(
                f"{shipment.where}: the broker took nothing for"
                f" {self._options.delivery_timeout_s:g} s"
            ) from exc
        except KafkaError as exc:
            raise named(exc, shipment.where) from exc

    def halt(self) -> None:
        """Send nothing more, at once; answers that are missing fail."""
        task = self._sender.sender_task
        if task is not None:
            task.cancel()
        for request in self._requests:
            request.cancel()
        self._accumulator.fail_all(KafkaError("the producer has been given up"))
        for batch in self._accumulator._pending_batches:  # noqa: SLF001
            _look_at(batch.future)
        for batches in self._accumulator._batches.values():  # noqa: SLF001
            for batch in batches:
                _look_at(batch.future)
                _look_at(batch._drain_waiter)  # noqa: SLF001
                if batch.retry_count:
                    # Queued again after a request without an answer, and still to be
                    # struck off the list of those on their way, which it has left.
                    self._accumulator._pending_batches.add(batch)  # noqa: SLF001

    async def discard(self) -> None:
        """Leave within ``close_timeout_s``, giving up what has no answer."""
        self.halt()
        tasks = {*self._requests}
        if self._sender.sender_task is not None:
            tasks.add(self._sender.sender_task)
        limit = asyncio.timeout(self._options.close_timeout_s)
        transports = self._transports()
        with contextlib.suppress(TimeoutError):
            async with limit:
                if tasks:
                    await asyncio.wait(tasks)
                # uvloop may raise for a handle that is closed already.
                with contextlib.suppress(OSError, RuntimeError, KafkaError):
                    await self.client.close()
        for transport in transports:
            # A farewell that TLS waits for, or bytes that nobody takes.
            transport.abort()
        # What __del__ asks, and complains of when stop() has not been called.
        self._producer._closed = True  # noqa: SLF001

    def _transports(self) -> list[asyncio.Transport]:
        connections = self.client._conns.values()  # noqa: SLF001
        writers = [connection._writer for connection in connections]  # noqa: SLF001
        return [writer.transport for writer in writers if writer is not None]

    def _track_requests(self) -> None:
        """Know the tasks of requests; the library keeps them in a local variable."""
        send = self._sender._send_produce_req  # noqa: SLF001

        async def tracked(node_id: int, batches: Any) -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine runs in a task
            self._requests.add(task)
            try:
                await send(node_id, batches)
            finally:
                self._requests.discard(task)

        self._sender._send_produce_req = tracked  # noqa: SLF001


def _look_at(future: asyncio.Future[Any]) -> None:
    """Look at a failure that nobody may be waiting for, or the loop complains of it."""
    if future.done() and not future.cancelled():
        future.exception()


async def why_unreachable(options: KafkaOptions) -> CdcError | None:
    """Try each server once; return what is wrong, a refusal before an absence.

    None when a server can be used after all.
    """
    arguments = client_arguments(options)
    servers = arguments.pop("bootstrap_servers")
    found: CdcError | None = None
    for host, port, _ in collect_hosts(servers, randomize=False):
        try:
            async with asyncio.timeout(_WHY_LIMIT_S):
                await _ask(host, port, arguments)
        except (OSError, KafkaError) as exc:
            error = named(exc, f"Kafka at {host}:{port}")
            if isinstance(exc, KafkaConnectionError | ConnectionResetError):
                error.hint = (
                    "it takes connections and closes them at the first word: compare"
                    " CDC_KAFKA__SECURITY_PROTOCOL with what this listener speaks"
                )
            if isinstance(error, SinkDenied):
                return error
            found = found or error
        else:
            return None
    return found


async def _prove_token(options: KafkaOptions) -> None:
    """Raise SinkDenied for a token that is refused, which the library overlooks.

    The refusal comes as a text without an error code (RFC 7628, 3.2.2). The library
    takes it for success, finds no broker in the next answer and tries for ever.
    """
    is_sasl = options.security_protocol.startswith("SASL_")
    if is_sasl and options.sasl_mechanism == "OAUTHBEARER":
        error = await why_unreachable(options)
        if error is not None:
            raise error


async def _ask(host: str, port: int, arguments: dict[str, Any]) -> None:
    connection = await create_conn(host, port, **arguments)
    try:
        answer = await connection.send(MetadataRequest([]))
    finally:
        connection.close()
    if arguments.get("sasl_oauth_token_provider") and not answer.brokers:
        raise AuthenticationFailedError("the token is refused")
