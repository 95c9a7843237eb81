"""Debezium as its users run it: its Postgres connector in a standalone Connect worker.

The outbox event router, string converters, the worker's own heap and collector; tuned
as its documentation advises for throughput, or as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg.conninfo import conninfo_to_dict

from bench.process import Command
from bench.recvlogical import PUBLICATION
from cdc.local import PortLease
from cdc.local.kafka_jars import maven_jars

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.race import Lane
    from cdc.local.kafka_jars import KafkaJars

DEBEZIUM: Final = "3.6.1.Final"
CONNECT: Final = "4.3.1"
# What bin/connect-standalone.sh and bin/kafka-run-class.sh start the JVM with.
_JVM: Final = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_TUNED_WORKER: Final = {
    "producer.linger.ms": "5",
    "producer.batch.size": str(256 << 10),
}
_TUNED_CONNECTOR: Final = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "10",
}


class Debezium:
    """A Connect worker with one connector; its port is its own until ``close``.

    Args:
        is_tuned: whether batches, queue and producer are larger than they come.

    Raises what the fetching of its jars raises, from the constructor.

    """

    writes_to_kafka = True

    def __init__(self, *, is_tuned: bool) -> None:
        self.name = "Debezium, tuned" if is_tuned else "Debezium"
        self._is_tuned = is_tuned
        self._worker, self._plugin = _installation()
        self._lease = PortLease()

    def close(self) -> None:
        """Give the port up."""
        self._lease.release()

    def command(self, lane: Lane) -> Command:
        """Return the worker that relays this lane; writes its files there."""
        plugins = lane.folder / "plugins"
        plugins.mkdir()
        (plugins / "debezium").symlink_to(self._plugin)
        worker = self._worker_properties(lane, plugins)
        connector = self._connector_properties(lane)
        if self._is_tuned:
            worker |= _TUNED_WORKER
            connector |= _TUNED_CONNECTOR
        files = [
            _written(lane.folder / "worker.properties", worker),
            _written(lane.folder / "connector.properties", connector),
        ]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return Command(argv=[*self._worker.command(_JVM, main), *files])

    def _worker_properties(self, lane: Lane, plugins: Path) -> dict[str, str]:
        text = "org.apache.kafka.connect.storage.StringConverter"
        return {
            "bootstrap.servers": lane.bootstrap_servers,
            "key.converter": text,
            "value.converter": text,
            "offset.storage.file.filename": str(lane.folder / "offsets"),
            "plugin.path": str(plugins),
            "listeners": f"http://127.0.0.1:{self._lease.port}",
        }

    def _connector_properties(self, lane: Lane) -> dict[str, str]:
        database = conninfo_to_dict(lane.dsn)
        return {
            "name": lane.slot,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": str(database["host"]),
            "database.port": str(database["port"]),
            "database.user": str(database["user"]),
            "database.dbname": str(database["dbname"]),
            "topic.prefix": lane.prefix,
            "plugin.name": lane.plugin,
            "slot.name": lane.slot,
            "publication.name": PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "table.include.list": "public.outbox",
            "snapshot.mode": "no_data",
            "tombstones.on.delete": "false",
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": (
                f"{lane.prefix}.${{routedByValue}}"
            ),
            "transforms.outbox.table.fields.additional.placement": (
                "type:header:eventType"
            ),
        }


def _installation() -> tuple[KafkaJars, Path]:
    worker = maven_jars(
        f"connect-{CONNECT}",
        [
            f"org.apache.kafka:{part}:{CONNECT}"
            for part in ("connect-runtime", "connect-json", "connect-transforms")
        ],
        None,
        _quiet,
    )
    plugin = maven_jars(
        f"debezium-postgres-{DEBEZIUM}",
        [f"io.debezium:debezium-connector-postgres:{DEBEZIUM}"],
        None,
        _quiet,
    )
    return worker, plugin.folder


def _quiet(_text: str) -> None:
    return


def _written(path: Path, properties: Mapping[str, str]) -> str:
    lines = (f"{name}={value}\n" for name, value in properties.items())
    path.write_text("".join(lines), encoding="ascii")
    return str(path)
