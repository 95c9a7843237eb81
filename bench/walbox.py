"""walbox, in an environment of its own: it asks for a newer Python than walferry."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.process import Command
from bench.recvlogical import PUBLICATION
from cdc.errors import RequirementMissing
from cdc.local.downloads import kept
from cdc.local.processes import run

if TYPE_CHECKING:
    from bench.race import Lane

WALBOX: Final = "1.0.0"
_PYTHON: Final = (3, 13)
_PACKAGES: Final = (
    f"walbox=={WALBOX}",
    "psycopg[binary]>=3.3,<4",
    "psycopg-pool>=3.2,<4",
    "aiokafka>=0.14,<0.15",
)
_HANDLER: Final = Path(__file__).with_name("walbox_handler.py")


class Walbox:
    """walbox with a handler that publishes to Kafka.

    Args:
        python: an interpreter that is new enough; without one, what the PATH has.

    Raises:
        RequirementMissing: there is none, or walbox could not be installed.

    """

    name = "walbox"
    writes_to_kafka = True

    def __init__(self, python: Path | None = None) -> None:
        chosen = str(python) if python else _found()
        version = _version(chosen)
        if version < _PYTHON:
            raise RequirementMissing(
                f"walbox {WALBOX} needs Python 3.13 or later, not {chosen}",
                hint="name one: --walbox-python PATH",
            )

        def make(part: Path) -> None:
            run([chosen, "-m", "venv", str(part)])
            pip = [str(part / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            run([*pip, "--disable-pip-version-check", *_PACKAGES])

        tag = ".".join(map(str, version))
        self._python = kept(f"walbox-{WALBOX}-py{tag}", make) / "bin" / "python"

    def command(self, lane: Lane) -> Command:
        """Return the handler that relays this lane."""
        where = [lane.dsn, lane.slot, PUBLICATION, lane.bootstrap_servers, lane.prefix]
        # -P: beside the handler lies a module of walbox' own name.
        return Command(argv=[str(self._python), "-P", str(_HANDLER), *where])


def _found() -> str:
    for name in (sys.executable, "python3.13", "python3.14", "python3"):
        path = shutil.which(name)
        if path and _version(path) >= _PYTHON:
            return path
    return sys.executable


def _version(python: str) -> tuple[int, ...]:
    """Return an interpreter's version; nothing where it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        printed = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(map(int, printed.split()))
