"""What every scenario is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bench.broker import Broker
    from bench.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for.

    Attributes:
        only: names of scenarios.
        runs: how often everything that is compared is repeated.
        events: of a catch-up.
        seconds: of one steady load, and of idleness.
        folder: for the results.
        walbox_python: an interpreter for walbox; None for what the PATH has.

    """

    only: tuple[str, ...]
    runs: int
    events: int
    seconds: float
    folder: Path
    walbox_python: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Options, where results go, and the Kafka that all scenarios share."""

    options: Options
    report: Report
    broker: Broker
