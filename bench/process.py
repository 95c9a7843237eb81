"""Processes that are measured: a clean environment, a log, an end that always comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.local import traces
from cdc.local.processes import last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_INHERITED: Final = ("PATH", "HOME", "LANG", "VIRTUAL_ENV")
_POLL_S: Final = 0.02
_STOP_DEADLINE_S: Final = 30.0


def python(*arguments: str, variables: Mapping[str, str] | None = None) -> Command:
    """Return a run of our own interpreter on this checkout, wherever it is installed.

    So that two checkouts can be held against each other with one set of packages.
    """
    here = {"PYTHONPATH": str(Path(__file__).parents[1])}
    return Command(
        argv=[sys.executable, *arguments], variables=here | {**(variables or {})}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is run.

    Attributes:
        argv: program and arguments.
        variables: its environment, beside what every program needs.

    """

    argv: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the whole environment: no setting of the user's shell gets in."""
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {**kept, **self.variables}


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """Have an empty folder to the end of the block, or of this process."""
    folder = traces.make_folder("bench")
    try:
        yield folder
    finally:
        traces.remove_folder(folder)


class Child:
    """A process of ours, in a session of its own; it ends when we do.

    Args:
        command: what is run, in ``folder``.
        folder: where its log goes.
        name: of the log.

    Attributes:
        pid: process id.

    """

    def __init__(self, command: Command, folder: Path, name: str = "log") -> None:
        self._log = folder / name
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=command.environment(),
                start_new_session=True,
            )
        self.pid = self._process.pid
        traces.process_started(self.pid, signal.SIGTERM)

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.exit_code is None

    def last_words(self) -> str:
        """Return the end of its log as one line."""
        return last_lines(self._log)

    def stop(self) -> int:
        """End it the orderly way, or the other way when it does not; return its code.

        Blocks until it is gone.
        """
        if self.is_running:
            self._process.terminate()
        try:
            code = self._process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        traces.process_ended(self.pid)
        return code

    def wait(self, deadline_s: float) -> int:
        """Return its code once it has ended by itself.

        Raises:
            TimeoutError: it has not, by then.

        """
        deadline = time.monotonic() + deadline_s
        while self.is_running:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._process.args!r} has not ended")
            time.sleep(_POLL_S)
        return self.stop()
