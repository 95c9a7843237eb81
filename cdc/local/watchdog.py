"""The small process that clears up after us, however we end.

Run as a program. Reads from standard input what its parent has started and made, one
fact a line; when the parent is gone the input ends, and what is still there is ended
and removed. Takes nothing from our packages and nothing from outside the standard
library: it must start in a moment, from any Python.

Lines: ``start PID SIGNAL``, ``end PID``, ``make FOLDER``, ``remove FOLDER``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE_S = 5.0


def remains(lines: Iterable[str]) -> tuple[dict[int, int], list[str]]:
    """Follow the parent's story to its end; return the processes and folders left."""
    processes: dict[int, int] = {}
    folders: list[str] = []
    for line in lines:
        verb, _, rest = line.rstrip("\n").partition(" ")
        if verb == "start":
            pid, _, number = rest.partition(" ")
            processes[int(pid)] = int(number)
        elif verb == "end":
            processes.pop(int(rest), None)
        elif verb == "make":
            folders.append(rest)
        elif verb == "remove" and rest in folders:
            folders.remove(rest)
    return processes, folders


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:  # no /proc on this system, or gone this instant: ask again later
        return True
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def end(processes: dict[int, int], patience_s: float = _PATIENCE_S) -> None:
    """End each process with its own signal, and with SIGKILL what outlives that."""
    for pid, number in processes.items():
        _send(pid, number)
    deadline = time.monotonic() + patience_s
    while any(is_alive(pid) for pid in processes) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in processes:
        if is_alive(pid):
            _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
        # A frozen process hears nothing but SIGKILL until it is thawed.
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def main() -> None:
    """Wait for the parent's end, then clear up."""
    processes, folders = remains(sys.stdin)
    end(processes)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
