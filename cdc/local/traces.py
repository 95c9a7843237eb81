"""What this process has started and made, told to a watchdog as it happens.

The watchdog is one small process for all our servers, started with the first of them.
It outlives us by the moment it takes to clear up: an interpreter that is killed runs
no ``finally`` and no ``atexit``. PR_SET_PDEATHSIG would not do: it is cleared when the
child changes its user, and it speaks of the death of the *thread* that forked.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from cdc.local import watchdog
from cdc.local.account import OURSELVES, Account

_PATIENCE_S = 15.0


class _Traces:
    """The line to the watchdog."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchdog: subprocess.Popen[str] | None = None

    def tell(self, line: str) -> None:
        with self._lock:
            if self._watchdog is None:
                self._watchdog = _start_watchdog()
                atexit.register(self.clear)
            if self._watchdog.stdin is None or self._watchdog.poll() is not None:
                return  # somebody ended it; the servers are not worse for that
            try:
                self._watchdog.stdin.write(line + "\n")
                self._watchdog.stdin.flush()
            except BrokenPipeError:
                return

    def clear(self) -> None:
        """End and remove everything that is left, and wait for that."""
        with self._lock:
            program, self._watchdog = self._watchdog, None
        if program is not None and program.stdin is not None:
            program.stdin.close()
            program.wait(_PATIENCE_S)


_traces = _Traces()


def process_started(pid: int, end_signal: int) -> None:
    """Have this process ended with that signal when we are gone."""
    _traces.tell(f"start {pid} {int(end_signal)}")


def process_ended(pid: int) -> None:
    """Take a process back: its number may soon be somebody else's."""
    _traces.tell(f"end {pid}")


def make_folder(purpose: str, account: Account = OURSELVES) -> Path:
    """Make an empty folder that is removed when we are gone."""
    folder = Path(tempfile.mkdtemp(prefix=f"walferry-{purpose}-"))
    _traces.tell(f"make {folder}")
    return account.owns(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it."""
    shutil.rmtree(folder, ignore_errors=True)
    _traces.tell(f"remove {folder}")


def _start_watchdog() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        # Out of reach of the terminal's Ctrl-C, which is meant for us.
        start_new_session=True,
    )
