"""The demo, as a newcomer starts it."""

from __future__ import annotations

import os
import re

import pytest

from cdc.demo.writer import total_events
from tests.relay_process import cdc

SUMMARY = re.compile(
    r"demo: (\d+) events committed, (\d+) acknowledged, (\d+) missing,"
    r" (\d+) duplicated, confirmed [0-9A-F]+/[0-9A-F]+"
)


@pytest.mark.parametrize("sink", ["jsonl", "kafka"])
async def test_the_demo_ends_by_itself_and_finds_everything(sink: str) -> None:
    settings = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "WALFERRY_CACHE")
        if name in os.environ
    }

    code, out, err = await cdc(
        "demo", "--sink", sink, settings=settings, deadline_s=240
    )

    assert code == 0, out + err
    summary = SUMMARY.fullmatch(out.splitlines()[-1])
    assert summary is not None, out
    committed, acknowledged, missing, duplicated = map(int, summary.groups())
    assert committed == acknowledged == total_events()
    assert missing == duplicated == 0
    assert "Traceback" not in err
