"""Real servers for the tests: started with the first test that wants them, once.

A developer's own servers are used instead when the environment names them:
``WALFERRY_TEST_PG15_DSN``, ``WALFERRY_TEST_PG18_DSN``, ``WALFERRY_TEST_KAFKA``.
``WALFERRY_TEST_MATRIX=1`` adds the further Postgres versions and the tests marked
``matrix``; ``WALFERRY_TEST_KAFKA_VERSION`` picks another Kafka. A server that cannot be
had fails the test with the command that installs it: a skipped test guards nothing.

Starting, stopping and restarting a server blocks: a test with something else running
in its event loop does so in a thread (``await asyncio.to_thread(server.restart)``).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from cdc.errors import RequirementMissing
from cdc.local import (
    DEFAULT_KAFKA_VERSION,
    Listener,
    LocalKafka,
    LocalPostgres,
    PortLease,
)
from tests.certificates import Certificate, make_certificate
from tests.kafka_records import Topics
from tests.kafka_security import (
    LISTENERS,
    PASSWORD,
    USER,
    KafkaSecurity,
    security_properties,
)
from tests.postgres_source import DevelopersServer, Server, Source
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

# Machines are shared: how long an example takes says nothing about the code.
settings.register_profile(
    "shared", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")

HAS_MATRIX = os.environ.get("WALFERRY_TEST_MATRIX") == "1"
KAFKA_VERSION = os.environ.get("WALFERRY_TEST_KAFKA_VERSION", DEFAULT_KAFKA_VERSION)
# A test's data need not outlive the machine, and everything else is as in production.
TEST_SETTINGS = {"fsync": "off"}
COMBINATIONS = [("15", "wal2json"), ("15", "pgoutput"), ("18", "pgoutput")]
FURTHER_COMBINATIONS = [("14", "pgoutput"), ("16", "pgoutput"), ("17", "pgoutput")]


def pytest_report_header() -> list[str]:
    libpq = psycopg.pq.version_pretty(psycopg.pq.version())
    kafka_used = os.environ.get("WALFERRY_TEST_KAFKA", KAFKA_VERSION)
    versions = f"psycopg {version('psycopg')} (libpq {libpq})"
    versions += f", aiokafka {version('aiokafka')}, Kafka {kafka_used}"
    return [f"walferry: {versions}, matrix {'on' if HAS_MATRIX else 'off'}"]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if HAS_MATRIX:
        return
    left_out = [item for item in items if item.get_closest_marker("matrix")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@contextlib.contextmanager
def missing_fails() -> Iterator[None]:
    try:
        yield
    except RequirementMissing as exc:
        pytest.fail(f"{exc}\n{exc.hint}", pytrace=False)


class PostgresServers:
    """The session's Postgres servers by major version, each started when asked for."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self._ours = contextlib.ExitStack()

    def __getitem__(self, major: str) -> Server:
        if major not in self._servers:
            self._servers[major] = self._server(major)
        return self._servers[major]

    def _server(self, major: str) -> Server:
        if dsn := os.environ.get(f"WALFERRY_TEST_PG{major}_DSN"):
            return DevelopersServer(dsn)
        with missing_fails():
            return self._ours.enter_context(
                LocalPostgres(major, settings=TEST_SETTINGS)
            )

    def close(self) -> None:
        self._ours.close()


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[PostgresServers]:
    """The session's shared servers: ``postgres_servers["15"]``."""
    servers = PostgresServers()
    yield servers
    servers.close()


def _combinations() -> list[Any]:
    chosen = COMBINATIONS + (FURTHER_COMBINATIONS if HAS_MATRIX else [])
    return [
        pytest.param(pair, id=f"pg{pair[0]}-{pair[1]}", marks=pytest.mark.postgres)
        for pair in chosen
    ]


@pytest.fixture(params=_combinations())
async def source(
    request: pytest.FixtureRequest, postgres_servers: PostgresServers
) -> AsyncIterator[Source]:
    """A fresh database on each server and plugin that the relay supports."""
    major, plugin = request.param
    async with Source(postgres_servers[major], major, plugin) as fresh:
        yield fresh


@pytest.fixture
async def source_of(
    postgres_servers: PostgresServers,
) -> AsyncIterator[Callable[..., Awaitable[Source]]]:
    """Fresh databases for a test that needs one combination only, or several.

    ``await source_of("18", "pgoutput")``; ``server=`` puts it on a private server.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            major: str = "18", plugin: str = "pgoutput", *, server: Any = None
        ) -> Source:
            where = server or postgres_servers[major]
            fresh = Source(where, major, plugin)
            # A private server goes with its databases, and may be down by then.
            if server is not None:
                stack.push_async_callback(fresh.disconnect)
                return await fresh.__aenter__()
            return await stack.enter_async_context(fresh)

        yield make


@pytest.fixture
def private_postgres() -> Iterator[Callable[..., LocalPostgres]]:
    """A started Postgres of the test's own, with its arguments and settings."""
    with contextlib.ExitStack() as stack:

        def make(major: str = "18", **options: Any) -> LocalPostgres:
            settings = TEST_SETTINGS | options.pop("settings", {})
            with missing_fails():
                return stack.enter_context(
                    LocalPostgres(major, settings=settings, **options)
                )

        yield make


@pytest.fixture(scope="session")
def kafka_proxy_port() -> Iterator[int]:
    """The port that the session's Kafka advertises to clients behind the proxy."""
    with PortLease() as lease:
        yield lease.port


@pytest.fixture(scope="session")
def kafka_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate of the session's own Kafka."""
    return make_certificate(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def local_kafka(
    kafka_proxy_port: int, kafka_certificate: Certificate
) -> Iterator[LocalKafka]:
    """The session's own Kafka, with listeners for the proxy, for SASL and for TLS."""
    behind_proxy = Listener(advertised_port=kafka_proxy_port)
    with missing_fails():
        broker = LocalKafka(
            KAFKA_VERSION,
            listeners={"PROXIED": behind_proxy, **LISTENERS},
            properties=security_properties(kafka_certificate),
            scram_users={USER: PASSWORD},
        )
        broker.__enter__()
    with contextlib.closing(broker):
        yield broker


@pytest.fixture(scope="session")
def kafka_security(
    local_kafka: LocalKafka, kafka_certificate: Certificate
) -> KafkaSecurity:
    """The SASL and TLS addresses of the session's own Kafka, and how to get in."""
    return KafkaSecurity(
        sasl=local_kafka.address("SASL"),
        tls=local_kafka.address("TLS"),
        sasl_tls=local_kafka.address("SASLTLS"),
        ca_file=kafka_certificate.ca_file,
    )


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> KafkaAddress:
    """The session's shared Kafka; ``bootstrap_servers`` is what tests may rely on."""
    if servers := os.environ.get("WALFERRY_TEST_KAFKA"):
        return KafkaAddress(servers)
    return KafkaAddress(request.getfixturevalue("local_kafka").bootstrap_servers)


class KafkaAddress:
    """Where the shared Kafka is; nobody may stop what all tests share."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture
def private_kafka() -> Iterator[Callable[..., LocalKafka]]:
    """A started Kafka of the test's own, with its arguments and properties."""
    with contextlib.ExitStack() as stack:

        def make(release: str = KAFKA_VERSION, **options: Any) -> LocalKafka:
            with missing_fails():
                return stack.enter_context(LocalKafka(release, **options))

        yield make


@pytest.fixture
async def proxy() -> AsyncIterator[Callable[..., Awaitable[Proxy]]]:
    """Proxies on loopback: ``await proxy(host, port)``."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(host: str, port: int, *, listen_port: int = 0) -> Proxy:
            fresh = Proxy(host, port, listen_port=listen_port)
            return await stack.enter_async_context(fresh)

        yield make


@pytest.fixture
async def kafka_proxy(
    local_kafka: LocalKafka,
    kafka_proxy_port: int,
    proxy: Callable[..., Awaitable[Proxy]],
) -> Proxy:
    """A proxy in front of the session's own Kafka; clients begin at its ``address``.

    The broker advertises the proxy to whoever comes through it, so everything goes
    that way, not only the first connection.
    """
    port = local_kafka.port("PROXIED")
    return await proxy("127.0.0.1", port, listen_port=kafka_proxy_port)


@pytest.fixture
def topic() -> str:
    """A topic name, or the beginning of several, that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def topics(kafka: KafkaAddress, topic: str) -> AsyncIterator[Topics]:
    """Make, list and read the topics that begin with ``topic``."""
    async with Topics(kafka.bootstrap_servers, topic) as own:
        yield own


@pytest.fixture
def kafka_records(topics: Topics) -> Callable[..., Awaitable[list[Any]]]:
    """``await kafka_records(topic, n, deadline_s)``: n records, or a failure."""
    return topics.read
