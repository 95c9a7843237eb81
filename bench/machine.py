"""Where and with what it was measured."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("walferry", "aiokafka", "psycopg", "uvloop", "orjson")


def machine() -> dict[str, Any]:
    """Return processor, memory, load and versions, as they are at this moment."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def sentence(facts: dict[str, Any]) -> str:
    """Return the facts as a line for people."""
    packages = ", ".join(f"{name} {number}" for name, number in _known(facts))
    load = " ".join(str(value) for value in facts["load_before"])
    return (
        f"{facts['when']}, {facts['cores']} cores of {facts['processor']},"
        f" {facts['memory_bytes'] / 2**30:.0f} GiB, load before {load};"
        f" {facts['system']}; Python {facts['python']}, {packages}"
    )


def _known(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, number) for name, number in facts["packages"].items() if number]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "an unnamed processor"
