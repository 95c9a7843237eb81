"""Measured processes: what they use, a clean environment, and an end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from bench.process import Child, Command, fresh_folder, python
from bench.usage import Usage, grown, usage_of

if TYPE_CHECKING:
    from pathlib import Path

SLEEP = "import time; time.sleep(600)"


def test_a_process_uses_memory_and_more_processor_time_the_more_it_works() -> None:
    before = usage_of(os.getpid())
    while grown(before, after := usage_of(os.getpid())) == 0:
        sum(range(100_000))

    assert before is not None
    assert after is not None
    assert after.cpu_s > before.cpu_s
    assert after.rss_peak_bytes >= after.rss_bytes > 2**20


def test_a_process_that_is_gone_uses_nothing_that_can_be_told(tmp_path: Path) -> None:
    child = Child(python("-c", "pass"), tmp_path)
    child.wait(20)

    assert usage_of(child.pid) is None
    assert grown(None, Usage(cpu_s=1, rss_bytes=1, rss_peak_bytes=1)) == 0


def test_no_setting_of_the_shell_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_SLOT__NAME", "somebody_elses")
    monkeypatch.setenv("PGHOST", "elsewhere")
    code = "import os; print(sorted(k for k in os.environ if k[:2] in ('CD', 'PG')))"

    child = Child(python("-c", code, variables={"CDC_NAME": "ours"}), tmp_path)

    assert child.wait(20) == 0
    assert child.last_words() == "['CDC_NAME']"


def test_one_that_does_not_end_is_told_by_a_deadline_and_stopped(
    tmp_path: Path,
) -> None:
    child = Child(Command(argv=[sys.executable, "-c", SLEEP]), tmp_path)
    try:
        with pytest.raises(TimeoutError, match="has not ended"):
            child.wait(0.05)
        assert child.is_running
    finally:
        code = child.stop()

    assert code == -15
    assert not child.is_running


def test_a_folder_is_gone_with_its_block() -> None:
    with fresh_folder() as folder:
        (folder / "file").touch()

    assert not folder.exists()
