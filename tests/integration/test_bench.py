"""The benchmarks run from one command, and leave whole results behind."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
]
DEADLINE_S = 800

SMALL = ("--runs", "1", "--events", "2000", "--seconds", "2")


@asynccontextmanager
async def running(
    folder: Path, *arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have the benchmarks running; none of them outlives the test."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", *SMALL, *arguments, "--folder", str(folder)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def stored(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return document


async def test_a_small_run_measures_every_scenario(tmp_path: Path) -> None:
    async with running(tmp_path, "--only", "catch-up,latency,cost") as process:
        async with asyncio.timeout(DEADLINE_S):
            printed, _ = await process.communicate()

    assert process.returncode == 0, printed.decode()
    results = stored(tmp_path)
    assert results["failures"] == []
    raced = {(run["course"], run["contestant"]) for run in results["readings"]["races"]}
    assert len(raced) == 2 * 3 * 2
    assert all(run["repeated"] == 0 for run in results["readings"]["races"])
    assert all(table["rows"] for table in results["tables"])
    assert (tmp_path / "rates.svg").exists()


async def test_an_interrupted_run_keeps_what_it_had_measured(tmp_path: Path) -> None:
    def has_a_reading() -> bool:
        file = tmp_path / "report.json"
        return file.exists() and "races" in stored(tmp_path)["readings"]

    async with running(tmp_path, "--only", "catch-up") as process:
        await eventually(has_a_reading, DEADLINE_S, what="the first race is over")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            printed, _ = await process.communicate()

    assert process.returncode == 130, printed.decode()
    results = stored(tmp_path)
    assert results["failures"] == ["the rest: interrupted"]
    assert results["readings"]["races"]
    assert "## Not measured" in (tmp_path / "report.md").read_text()
