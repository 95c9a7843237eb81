"""A Kafka of one's own: one node, broker and controller in one, KRaft."""

from __future__ import annotations

import base64
import secrets
import signal
from typing import TYPE_CHECKING, Self

from cdc.local import traces
from cdc.local.kafka_jars import DEFAULT_KAFKA_VERSION, JarProvider, kafka_jars
from cdc.local.listeners import CONTROLLER, PLAIN, Listener, listener_properties
from cdc.local.ports import LOOPBACK, PortLease, is_listening
from cdc.local.processes import Program, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.local.postgres_binaries import Progress

# One node cannot replicate, and partitions of internal topics cost start-up time.
_DEFAULTS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A killed broker may not register again before its old session has run out; with
    # the stock 9 s a restart takes 12 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_READY_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 30.0
# Since 4.0 a single controller starts a quorum that can grow; 3.9 names its voters.
_FIRST_GROWING_QUORUM = 4


class LocalKafka:
    """An Apache Kafka on loopback whose data lives as long as this object.

    Args:
        version: of Apache Kafka, "4.4.0" or "3.9.1" for instance.
        properties: for server.properties; they win over ours.
        listeners: further listeners by name, each on a port of its own.
        scram_users: passwords by user name, for SCRAM-SHA-256 and SCRAM-SHA-512.
        provider: where Java and the jars come from (``kafka_jars``).
        progress: told what is being fetched and started.

    """

    def __init__(
        self,
        version: str = DEFAULT_KAFKA_VERSION,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        scram_users: Mapping[str, str] | None = None,
        provider: JarProvider | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.version = version
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._scram_users = dict(scram_users or {})
        self._progress = progress or (lambda _text: None)
        self._jars = kafka_jars(version, provider, self._progress)
        names = [PLAIN, CONTROLLER, *self._listeners]
        self._leases = {name: PortLease() for name in names}
        self._program: Program | None = None
        self.folder = traces.make_folder(f"kafka-{version}")
        self.log = self.folder / "server.log"
        self._configuration = self.folder / "server.properties"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the plain listener."""
        return self.address(PLAIN)

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is there."""
        return self._program is not None and self._program.is_running()

    def port(self, listener: str = PLAIN) -> int:
        """Return the port that the broker itself listens on."""
        return self._leases[listener].port

    def address(self, listener: str) -> str:
        """Return where clients of a listener begin: what the broker advertises."""
        chosen = self._listeners.get(listener, Listener())
        return f"{LOOPBACK}:{chosen.advertised_port or self.port(listener)}"

    def start(self) -> None:
        """Start the broker, on the first call with fresh data, and wait until ready."""
        if self.is_running:
            return
        self._progress(f"starting Kafka {self.version} on port {self.port()}")
        if not self._configuration.exists():
            self._format()
        self._program = Program(
            [*self._jars.command(self._options(), "kafka.Kafka"), self._conf],
            log=self.log,
            cwd=self.folder,
        )
        self._program.wait_ready(self._is_ready, _READY_DEADLINE_S)

    def start_again(self) -> None:
        """Start the broker that was stopped or killed, on the same data and ports."""
        self.start()

    def stop(self) -> None:
        """Stop the broker the orderly way and keep its data."""
        if self._program is not None:
            self.thaw()
            self._program.send(signal.SIGTERM)
            self._program.wait_end(_STOP_DEADLINE_S)
        self._program = None

    def kill(self) -> None:
        """End the broker with SIGKILL and keep its data."""
        if self._program is not None:
            self._program.kill()
        self._program = None

    def freeze(self) -> None:
        """Stop the broker's process in its tracks: connected, and silent."""
        if self._program is not None:
            self._program.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen broker go on."""
        if self._program is not None:
            self._program.send(signal.SIGCONT)

    def close(self) -> None:
        """End the broker, remove its data and give up its ports."""
        try:
            # Its data is going to be removed: an orderly stop would write for nobody.
            self.kill()
        finally:
            traces.remove_folder(self.folder)
            for lease in self._leases.values():
                lease.release()

    @property
    def _conf(self) -> str:
        return str(self._configuration)

    def _options(self) -> list[str]:
        """Return the JVM's options; what it unpacks stays in a folder of ours."""
        folder = self.folder / "jvm"
        folder.mkdir(exist_ok=True)
        return [
            *_JVM,
            *_LOGGING,
            f"-Djava.io.tmpdir={folder}",
            f"-Dorg.xerial.snappy.tempdir={folder}",
        ]

    def _format(self) -> None:
        ports = {name: lease.port for name, lease in self._leases.items()}
        controller = f"{LOOPBACK}:{ports[CONTROLLER]}"
        properties = {
            **_DEFAULTS,
            **listener_properties(ports, self._listeners),
            "log.dirs": str(self.folder / "data"),
        }
        standalone = []
        if int(self.version.split(".")[0]) >= _FIRST_GROWING_QUORUM:
            properties["controller.quorum.bootstrap.servers"] = controller
            standalone = ["--standalone"]
        else:
            properties["controller.quorum.voters"] = f"1@{controller}"
        text = "".join(
            f"{name}={_escaped(value)}\n"
            for name, value in (properties | self._properties).items()
        )
        draft = self.folder / "draft.properties"
        draft.touch(mode=0o600)  # it may hold the passwords of a test
        draft.write_text(text, encoding="ascii")
        identifier = _cluster_id()
        tool = self._jars.command(_LOGGING, "kafka.tools.StorageTool")
        credentials = [
            option
            for user, password in self._scram_users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for option in (
                "--add-scram",
                f"{mechanism}=[name={user},password={password}]",
            )
        ]
        run(
            [
                *tool,
                "format",
                *standalone,
                "-t",
                identifier,
                "-c",
                str(draft),
                *credentials,
            ],
            cwd=self.folder,
        )
        draft.rename(self._configuration)

    def _is_ready(self) -> bool:
        return all(is_listening(lease.port) for lease in self._leases.values())


def _escaped(value: str) -> str:
    """Write a value as java.util.Properties reads it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _cluster_id() -> str:
    """Return a new cluster's identifier: 16 bytes as Kafka writes them.

    The first byte is fixed: a random one makes one identifier in 64 begin with a dash,
    which the tool takes for an option.
    """
    return base64.urlsafe_b64encode(b"W" + secrets.token_bytes(15)).decode().rstrip("=")
