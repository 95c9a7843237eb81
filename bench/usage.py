"""What a process uses, read from /proc: processor seconds and resident memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
# proc(5): utime and stime, counted behind the program's name in parentheses.
_UTIME: Final = 11
_STIME: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One reading.

    Attributes:
        cpu_s: user and system time since the process began, to a clock tick (10 ms).
        rss_bytes: resident now.
        rss_peak_bytes: the most that ever was resident.

    """

    cpu_s: float
    rss_bytes: int
    rss_peak_bytes: int


def usage_of(pid: int) -> Usage | None:
    """Read what a process uses; None when it has ended."""
    try:
        memory = _memory(pid)
        cpu_s = _cpu_s(pid)
    except (OSError, IndexError):
        return None
    if "VmRSS" not in memory:  # a zombie has no memory
        return None
    return Usage(
        cpu_s=cpu_s,
        rss_bytes=memory["VmRSS"],
        rss_peak_bytes=memory.get("VmHWM", memory["VmRSS"]),
    )


def grown(before: Usage | None, after: Usage | None) -> float:
    """Return the processor seconds between two readings; 0 where one is missing."""
    return after.cpu_s - before.cpu_s if before and after else 0.0


def _cpu_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) * _TICK_S


def _memory(pid: int) -> dict[str, int]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    pairs = (line.split(":", 1) for line in text.splitlines())
    return {
        name: int(value.split()[0]) * 1024
        for name, value in pairs
        if name in ("VmRSS", "VmHWM")
    }
