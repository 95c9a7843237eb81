from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from cdc.local import watchdog

if TYPE_CHECKING:
    from pathlib import Path

# Says that it is there, ignores SIGTERM, and stays.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("there", flush=True)
time.sleep(600)
"""


def start(program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_what_was_ended_and_removed_is_left_alone() -> None:
    lines = ["start 7 9\n", "start 8 3\n", "make /a b\n", "make /c\n"]
    lines += ["end 7\n", "end 99\n", "remove /c\n", "remove /unknown\n"]
    assert watchdog.remains(lines) == ({8: 3}, ["/a b"])


def test_a_process_that_only_waits_to_be_reaped_is_not_alive() -> None:
    with start("print('there', flush=True)") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not watchdog.is_alive(process.pid)
    assert watchdog.is_alive(os.getpid())


def test_a_frozen_process_ends_by_its_own_signal() -> None:
    with start("import time; print('there', flush=True); time.sleep(600)") as process:
        process.send_signal(signal.SIGSTOP)
        watchdog.end({process.pid: signal.SIGTERM})
        assert process.wait(5) == -signal.SIGTERM


def test_the_end_of_the_story_clears_up(tmp_path: Path) -> None:
    """Input that ends is a parent that is gone, whatever it could still say."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "file").touch()
    # Without a core to write, which on a busy machine takes longer than it is given.
    program = (
        "import resource, time; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
        " print('there', flush=True); time.sleep(600)"
    )
    with start(program) as server:
        story = f"start {server.pid} {int(signal.SIGQUIT)}\nmake {folder}\n"
        subprocess.run(
            [sys.executable, "-I", "-S", watchdog.__file__],
            input=story,
            text=True,
            check=True,
            timeout=20,
        )
        assert server.wait(5) == -signal.SIGQUIT
    assert not folder.exists()


def test_what_outlives_its_signal_is_killed() -> None:
    with start(STUBBORN) as process:
        watchdog.end({process.pid: signal.SIGTERM}, patience_s=0.2)
        assert process.wait(5) == -signal.SIGKILL
