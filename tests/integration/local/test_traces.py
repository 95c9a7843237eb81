"""Servers are gone with the process that started them, however that one ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc.local.ports import is_listening
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

STARTER = """
import json, sys
from cdc.local import LocalKafka, LocalPostgres
postgres, kafka = LocalPostgres("18"), LocalKafka()
postgres.start()
kafka.start()
print(json.dumps({
    "ports": [postgres.port, kafka.port()],
    "folders": [str(postgres.folder), str(kafka.folder)],
}), flush=True)
sys.stdin.read()
sys.exit("no orderly stop, an exception perhaps")
"""


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def started(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    assert all(is_listening(port) for port in facts["ports"])
    assert all(Path(folder).is_dir() for folder in facts["folders"])
    return facts


def nothing_is_left(facts: dict[str, Any]) -> bool:
    return not any(is_listening(port) for port in facts["ports"]) and not any(
        Path(folder).exists() for folder in facts["folders"]
    )


async def test_a_process_killed_with_its_whole_group_leaves_nothing(
    starter: subprocess.Popen[str],
) -> None:
    facts = started(starter)
    os.killpg(starter.pid, signal.SIGKILL)
    await eventually(lambda: nothing_is_left(facts), 15, what="all is cleared up")


def test_a_process_that_ends_without_closing_has_cleared_up_when_it_is_gone(
    starter: subprocess.Popen[str],
) -> None:
    facts = started(starter)
    assert starter.stdin is not None
    starter.stdin.close()
    starter.wait(30)
    assert nothing_is_left(facts)
