"""Server programs: start, wait until ready, signal, wait for the end.

Waiting always has a deadline, and what ends badly is told with the last lines of the
program's own log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.errors import RequirementMissing
from cdc.local import traces
from cdc.local.account import OURSELVES, Account
from cdc.local.watchdog import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_POLL_S = 0.02
_KILL_DEADLINE_S = 10.0


class Program:
    """One running server program, in a session of its own.

    Ctrl-C at the terminal does not reach it: whoever started it decides when it ends.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        account: Account = OURSELVES,
        cwd: Path,
        end_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self._name = Path(argv[0]).name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                start_new_session=True,
                env=program_environment(),
                **identity(account),
            )
        self.pid = self._process.pid
        traces.process_started(self.pid, end_signal)

    def is_running(self) -> bool:
        """Tell whether the program has not ended yet."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(number)

    def wait_ready(self, is_ready: Callable[[], bool], deadline_s: float) -> None:
        """Wait until it serves; raise when it ends or the deadline passes first."""
        deadline = time.monotonic() + deadline_s
        while not is_ready():
            if not self.is_running():
                raise self._failure(f"ended with code {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"not ready within {deadline_s:.0f} s")
            time.sleep(_POLL_S)

    def wait_end(self, deadline_s: float) -> None:
        """Wait until it has ended; raise when the deadline passes first."""
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired as exc:
            raise self._failure(f"has not ended within {deadline_s:.0f} s") from exc
        traces.process_ended(self.pid)

    def kill(self) -> None:
        """End it and its children at once with SIGKILL, and wait until all are gone."""
        if not self.is_running():
            return
        family = [self.pid, *_children(self.pid)]
        self.send(signal.SIGKILL)
        for pid in family[1:]:
            _kill(pid)
        self.wait_end(_KILL_DEADLINE_S)
        deadline = time.monotonic() + _KILL_DEADLINE_S
        while any(is_alive(pid) for pid in family):
            if time.monotonic() > deadline:
                raise self._failure("left children that do not end")
            time.sleep(_POLL_S)

    def _failure(self, what: str) -> RequirementMissing:
        return RequirementMissing(
            f"{self._name} {what}; its log ends with: {last_lines(self._log)}",
            hint="often a full disk, too little memory or a wrong setting",
        )


def run(
    argv: Sequence[str], *, account: Account = OURSELVES, cwd: Path | None = None
) -> str:
    """Run a program to its end and return what it printed; raise when it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        cwd=cwd or "/",
        env=program_environment(),
        text=True,
        errors="replace",
        **identity(account),
    )
    if done.returncode != 0:
        raise RequirementMissing(
            f"{Path(argv[0]).name} failed with code {done.returncode}: "
            f"{one_line(done.stdout)}",
            hint=f"run it by hand to see more: {' '.join(argv)}",
        )
    return done.stdout


def program_environment() -> Mapping[str, str]:
    """Return our environment without what would steer libpq or a server elsewhere."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("PG")
    }


def identity(account: Account) -> dict[str, Any]:
    """Return the arguments that make ``subprocess`` run a program as this account."""
    if account.uid is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def last_lines(log: Path, count: int = 5) -> str:
    """Return the end of a log as one line."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return one_line("\n".join(text.splitlines()[-count:])) or "(empty log)"


def one_line(text: str) -> str:
    """Join lines, so that an error stays one line."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())


def _children(pid: int) -> list[int]:
    """Return the direct children; none where the system has no /proc."""
    return [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _parent(stat) == pid
    ]


def _parent(stat: Path) -> int | None:
    try:
        # The name in parentheses may hold anything; after it come state and parent.
        text = stat.read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, IndexError):  # it ended between listing and reading
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
