"""A Postgres of one's own: made, started, stopped, crashed and started again.

All versions are run the same way, by ``postgres`` itself in the foreground; ``pg_ctl``
would only stand between us and the process.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote

from cdc.errors import RequirementMissing
from cdc.local import traces
from cdc.local.account import unprivileged
from cdc.local.ports import LOOPBACK, PortLease
from cdc.local.postgres_binaries import (
    DEFAULT_POSTGRES_VERSION,
    Progress,
    postgres_programs,
)
from cdc.local.postgres_data import SUPERUSER, DataFolder
from cdc.local.processes import Program, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

StopMode = Literal["smart", "fast", "immediate"]

# postmaster: "Smart, Fast, Immediate" (server shutdown modes of the documentation).
_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# Recovery after a crash under load replays WAL before the server is ready.
_READY_DEADLINE_S = 60.0
# A walsender whose client is stuck holds a shutdown up for wal_sender_timeout.
_STOP_DEADLINE_S = 90.0


class LocalPostgres:
    """A Postgres server on loopback whose data lives as long as this object.

    The superuser is ``postgres`` and needs no password. ``wal_level`` is logical;
    everything else is the server's default unless ``settings`` says otherwise.

    Args:
        version: major version, "14" to "18".
        settings: lines for postgresql.conf, values as they would stand in quotes.
        encoding: of the databases made from the templates.
        wal_segment_mb: size of a WAL file, for tests that want to fill many.
        hba: lines for pg_hba.conf, above those that trust everybody on loopback.
        progress: told what is being fetched and started.

    """

    def __init__(
        self,
        version: str = DEFAULT_POSTGRES_VERSION,
        *,
        settings: Mapping[str, str] | None = None,
        encoding: str = "UTF8",
        wal_segment_mb: int | None = None,
        hba: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        self.version = version
        self._settings = dict(settings or {})
        self._encoding = encoding
        self._wal_segment_mb = wal_segment_mb
        self._hba = tuple(hba)
        self._progress = progress or (lambda _text: None)
        self._account = unprivileged()
        self._programs = postgres_programs(version, self._account, self._progress)
        self._lease = PortLease()
        self._program: Program | None = None
        self.port = self._lease.port
        self.folder = traces.make_folder(f"postgres-{version}", self._account)
        self.data_dir = self.folder / "data"
        self._data = DataFolder(
            self.data_dir, programs=self._programs, account=self._account
        )
        self.log = self.folder / "server.log"

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
    def server_version(self) -> str:
        """The release, like ``15.20``."""
        return run([self._path("postgres"), "--version"]).split()[2]

    @property
    def is_running(self) -> bool:
        """Whether the server's process is there."""
        return self._program is not None and self._program.is_running()

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        """Return the address of a database, as a URI without a password."""
        return (
            f"postgresql://{quote(user, safe='')}@{LOOPBACK}:{self.port}"
            f"/{quote(dbname, safe='')}"
        )

    def start(self) -> None:
        """Start the server, on the first call with fresh data, and wait until ready."""
        if self.is_running:
            return
        if not self.data_dir.exists():
            self._data.initialise(self._encoding, self._wal_segment_mb)
            self._configure()
        self._progress(f"starting Postgres {self.version} on port {self.port}")
        self._program = Program(
            [self._path("postgres"), "-D", str(self.data_dir)],
            log=self.log,
            account=self._account,
            cwd=self.folder,
            end_signal=_STOP_SIGNALS["immediate"],
        )
        pid = self._program.pid
        self._program.wait_ready(lambda: self._data.is_ready(pid), _READY_DEADLINE_S)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data; harmless when it is not running."""
        if self._program is not None:
            self._program.send(_STOP_SIGNALS[mode])
            self._program.wait_end(_STOP_DEADLINE_S)
        self._program = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server and start it again on the same port and data."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """End every process of the server with SIGKILL, as a machine's crash would."""
        if self._program is not None:
            self._program.kill()
        self._program = None

    def close(self) -> None:
        """Stop the server, remove its data and give up its port."""
        try:
            self.stop("immediate")
        finally:
            self._data.remove_shared_memory()
            traces.remove_folder(self.folder)
            self._lease.release()

    def put(self, name: str, text: str) -> Path:
        """Write a file that only the server can read: a key, a certificate.

        It stands in the data folder, which is there once the server has been started.
        """
        return self._data.write(name, text)

    def set(self, **settings: str) -> None:
        """Change settings in the file; in force from the next reload or start.

        The data must be there: before the first start, settings are an argument.
        """
        self._settings.update(settings)
        self._configure()

    def reload(self) -> None:
        """Have the running server read its configuration files again."""
        if self._program is not None:
            self._program.send(signal.SIGHUP)

    def base_backup(self) -> LocalPostgres:
        """Copy the running server with pg_basebackup, not started yet.

        The copy is the same cluster (same system identifier) on a port of its own,
        without replication slots.
        """
        program = Path(self._path("pg_basebackup"))
        if not program.exists():  # npm's packages bring the bare server only
            raise RequirementMissing(
                f"the programs of Postgres {self.version} lack pg_basebackup",
                hint="take 15 or 18 where a test needs a standby",
            )
        source = ["-h", LOOPBACK, "-p", str(self.port), "-U", SUPERUSER]
        options = ["-X", "stream", "-c", "fast", "--no-sync", "-D"]
        return self._copied_by([str(program), *source, *options])

    def cold_copy(self) -> LocalPostgres:
        """Copy the stopped server, replication slots included, not started yet."""
        if self.is_running:
            raise RuntimeError("a cold copy is of a stopped server")
        return self._copied_by(["cp", "-Rp", str(self.data_dir)])

    def standby(self, **settings: str) -> LocalPostgres:
        """Make a streaming standby of this running server, not started yet.

        Args:
            settings: the standby's own, ``primary_slot_name`` for one.

        """
        copy = self.base_backup()
        copy.put("standby.signal", "")
        # The database is for slot synchronisation, which runs queries (17 and later).
        conninfo = f"host={LOOPBACK} port={self.port} user={SUPERUSER} dbname=postgres"
        copy.set(primary_conninfo=conninfo, **settings)
        return copy

    def take_slot(self, source: LocalPostgres, name: str) -> None:
        """Copy another server's slot, as its disk has it; known from the next start.

        High-availability tools do so for the standbys of servers before 17.
        """
        if self.is_running:
            raise RuntimeError("a running server does not see a slot put into its data")
        slots = "pg_replslot"
        original = source.data_dir / slots / name
        command = ["cp", "-Rp", str(original), str(self.data_dir / slots)]
        run(command, account=self._account)

    def promote(self) -> None:
        """Make a primary of a standby, and wait until it is one."""
        argv = [self._path("pg_ctl"), "promote", "-w", "-D", str(self.data_dir)]
        run(argv, account=self._account)

    def _copied_by(self, command: Sequence[str]) -> LocalPostgres:
        """Make a server whose data this command writes to its last argument."""
        copy = LocalPostgres(
            self.version,
            settings=self._settings,
            hba=self._hba,
            progress=self._progress,
        )
        try:
            run([*command, str(copy.data_dir)], account=self._account)
            copy.set()
        except BaseException:
            copy.close()
            raise
        return copy

    def _path(self, program: str) -> str:
        return str(self._programs / program)

    def _configure(self) -> None:
        own = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        self._data.configure(own | self._settings, self._hba)
