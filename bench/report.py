"""The results as they come in: printed, and kept in files that are always whole.

Everything is written again after every step, so a run that is interrupted, or fails in
its third hour, leaves what it had measured.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from bench.machine import sentence
from bench.picture import draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.picture import Panel
    from bench.table import Table

_TITLE = "walferry: measured"


class Report:
    """Tables, raw readings and pictures of one session of the benchmarks.

    Args:
        folder: gets ``report.md``, ``report.json`` and ``rates.svg``.
        facts: of the machine.

    """

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self.folder = folder
        self._facts = facts
        self._tables: list[Table] = []
        self._panels: list[Sequence[Panel]] = []
        self._readings: dict[str, list[Any]] = {}
        self._failures: list[str] = []
        self._left_out: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.say(sentence(facts))

    @property
    def has_failures(self) -> bool:
        """Whether anything could not be measured."""
        return bool(self._failures)

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"bench: {text}", flush=True)

    def version(self, name: str, release: str) -> None:
        """Note a server's or a peer's release beside the machine's facts."""
        self._facts["packages"][name] = release

    @contextmanager
    def table(self, table: Table) -> Iterator[Table]:
        """Have a table that rows are added to; it is printed at the end of the block.

        Interrupted or not: what it has by then is what was measured.
        """
        self._tables.append(table)
        try:
            yield table
        finally:
            if table.rows:
                print(f"\n{table.as_text()}", flush=True)
            self.write()

    def keep(self, scenario: str, reading: Any) -> None:
        """Keep a raw reading (a dataclass, or what JSON knows), and write."""
        self._readings.setdefault(scenario, []).append(reading)
        self.write()

    def show(self, panels: Sequence[Panel]) -> None:
        """Add a row of panels to the picture."""
        self._panels.append(panels)

    def failed(self, what: str) -> None:
        """Note that something could not be measured, and why."""
        self._failures.append(what)
        self.say(f"FAILED: {what}")
        self.write()

    def left_out(self, what: str) -> None:
        """Note what cannot be had on this machine, and why; that is no failure."""
        self._left_out.append(what)
        self.say(f"left out: {what}")
        self.write()

    def write(self) -> None:
        """Write the three files, each whole before it takes its name."""
        self._put("report.md", self._markdown())
        document = {
            "machine": self._facts,
            "failures": self._failures,
            "left_out": self._left_out,
            "tables": self._tables,
            "readings": self._readings,
        }
        self._put("report.json", orjson.dumps(document, option=orjson.OPT_INDENT_2))
        if self._panels:
            self._put("rates.svg", draw(self._panels).encode())

    def _markdown(self) -> bytes:
        parts = [f"# {_TITLE}\n", f"`{self._facts['command']}`\n"]
        parts.append(sentence(self._facts) + "\n")
        if settings := self._facts.get("postgres_settings"):
            listed = ", ".join(f"{name}={value}" for name, value in settings.items())
            parts.append(f"Postgres has its defaults but for {listed}.\n")
        if self._panels:
            parts.append("![rate and memory over time](rates.svg)\n")
        parts += [table.as_markdown() for table in self._tables if table.rows]
        for heading, lines in (
            ("Not measured", self._failures),
            ("Left out", self._left_out),
        ):
            if lines:
                parts.append(f"## {heading}\n")
                parts += [f"- {line}" for line in lines]
        return ("\n".join(parts) + "\n").encode()

    def _put(self, name: str, content: bytes) -> None:
        draft = self.folder / f".{name}"
        draft.write_bytes(content)
        draft.rename(self.folder / name)
