"""The data folder of a local Postgres: made, configured, asked about its server."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
from typing import TYPE_CHECKING

from cdc.local.postgres_configuration import (
    PLUGIN_ALLOWANCE,
    access_rules,
    configuration,
)
from cdc.local.processes import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cdc.local.account import Account

SUPERUSER = "postgres"
_OWN_SETTINGS = "walferry.conf"
# Lines of postmaster.pid (miscadmin.h), counted from 0.
_SHARED_MEMORY_LINE = 6
_STATUS_LINE = 7
_IPC_RMID = 0


class DataFolder:
    """One cluster's files.

    Args:
        path: where they are or will be.
        programs: of the version that the cluster is for.
        account: who owns them.

    """

    def __init__(self, path: Path, *, programs: Path, account: Account) -> None:
        self.path = path
        self._programs = programs
        self._account = account

    def initialise(self, encoding: str, wal_segment_mb: int | None) -> None:
        """Make a new cluster; leave nothing when that fails."""
        argv = [str(self._programs / "initdb"), "-D", str(self.path), "-U", SUPERUSER]
        # The C locale is in every system and goes with every encoding.
        argv += ["--auth=trust", "--no-sync", "--locale=C", "-E", encoding]
        if wal_segment_mb is not None:
            argv.append(f"--wal-segsize={wal_segment_mb}")
        try:
            run(argv, account=self._account, cwd=self.path.parent)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        with (self.path / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"\ninclude '{_OWN_SETTINGS}'\n")

    def configure(self, settings: Mapping[str, str], hba: Sequence[str]) -> None:
        """Write the settings and the access rules."""
        known = run([str(self._programs / "postgres"), "--describe-config"])
        text = configuration(settings, has_plugin_allowance=PLUGIN_ALLOWANCE in known)
        self.write(_OWN_SETTINGS, text)
        self.write("pg_hba.conf", access_rules(hba))

    def write(self, name: str, text: str) -> Path:
        """Write a file that the server alone can read, and return its path."""
        path = self.path / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return self._account.owns(path)

    def is_ready(self, pid: int) -> bool:
        """Tell whether the server of this process accepts connections.

        The server itself writes so into its lock file, where ``pg_ctl -w`` reads it. A
        killed server leaves its lock file behind, hence the process.
        """
        lines = self._lock_file()
        return (
            len(lines) > _STATUS_LINE
            and lines[0].strip() == str(pid)
            and lines[_STATUS_LINE].strip() in {"ready", "standby"}
        )

    def remove_shared_memory(self) -> None:
        """Remove the System V segment that a killed server left for its next start."""
        lines = self._lock_file()
        if len(lines) > _SHARED_MEMORY_LINE and lines[_SHARED_MEMORY_LINE].strip():
            identifier = int(lines[_SHARED_MEMORY_LINE].split()[1])
            ctypes.CDLL(None).shmctl(identifier, _IPC_RMID, None)

    def _lock_file(self) -> list[str]:
        with contextlib.suppress(OSError):
            return (self.path / "postmaster.pid").read_text("utf-8").splitlines()
        return []
