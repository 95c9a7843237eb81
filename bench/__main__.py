"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import uvloop
from aiokafka.errors import KafkaError

from bench.broker import Broker
from bench.catch_up import catch_up
from bench.cost import cost
from bench.growth import growth
from bench.latency import latency
from bench.machine import machine
from bench.peers import peers
from bench.report import Report
from bench.session import Options, Session
from bench.source import SETTINGS
from cdc.errors import RequirementMissing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

SCENARIOS: Final[Mapping[str, Callable[[Session], Awaitable[None]]]] = {
    "catch-up": catch_up,
    "latency": latency,
    "cost": cost,
    "growth": growth,
    "peers": peers,
}
DEFAULT: Final = ("catch-up", "latency", "cost", "growth")
RESULTS: Final = Path(__file__).parent / "results"
_INTERRUPTED: Final = 130


def options_of(arguments: Sequence[str]) -> Options:
    """Read the command line; exits with 2 where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure walferry on servers of its own. Results are printed, and"
        " written as Markdown, JSON and SVG.",
        epilog="example: python -m bench --only catch-up,latency --quick",
    )
    names = ",".join(SCENARIOS)
    parser.add_argument(
        "--only",
        default=",".join(DEFAULT),
        metavar="NAMES",
        help=f"of {names}; without it, all but the peers",
    )
    parser.add_argument("--runs", type=_positive, default=5)
    parser.add_argument("--events", type=_positive, default=500_000)
    parser.add_argument(
        "--seconds", type=_positive, default=60, help="of a steady load, of idleness"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one small run of everything, to try it"
    )
    parser.add_argument("--folder", type=Path, help="for the results")
    parser.add_argument("--walbox-python", type=Path, help="Python 3.13 or later")
    chosen = parser.parse_args(arguments)
    only = tuple(name for name in chosen.only.split(",") if name)
    if unknown := [name for name in only if name not in SCENARIOS]:
        parser.error(f"--only: no scenario {', '.join(unknown)}; there are {names}")
    folder = chosen.folder or RESULTS / time.strftime("%Y%m%dT%H%M%S")
    if chosen.quick:
        chosen.runs, chosen.events, chosen.seconds = 1, 20_000, 5
    return Options(
        only=only,
        runs=chosen.runs,
        events=chosen.events,
        seconds=chosen.seconds,
        folder=folder.absolute(),
        walbox_python=chosen.walbox_python,
    )


async def measure(options: Options) -> int:
    """Run the scenarios one after the other; return the exit code."""
    # What the client library says of topics that are just being made is no result.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    facts = machine() | {"postgres_settings": dict(SETTINGS)}
    report = Report(options.folder, facts)
    _cancel_on_signals()
    try:
        async with Broker() as broker:
            report.version("Kafka", broker.release)
            session = Session(options=options, report=report, broker=broker)
            for name in options.only:
                await _scenario(session, name)
    except asyncio.CancelledError:
        report.failed("the rest: interrupted")
        return _INTERRUPTED
    except RequirementMissing as exc:
        report.failed(f"the rest: {exc} -> {exc.hint}")
    finally:
        report.write()
        report.say(f"results in {options.folder}")
    return 1 if report.has_failures else 0


async def _scenario(session: Session, name: str) -> None:
    """Run one; what goes wrong with it is told, and does not keep the next back."""
    session.report.say(f"scenario {name}")
    try:
        await SCENARIOS[name](session)
    except (OSError, RuntimeError, EOFError, psycopg.Error, KafkaError) as exc:
        session.report.failed(f"the rest of {name}: {exc or repr(exc)}")


def _cancel_on_signals() -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _positive(text: str) -> int:
    value = int(text.replace("_", "").replace(",", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


if __name__ == "__main__":
    sys.exit(uvloop.run(measure(options_of(sys.argv[1:]))))
