"""``cdc run`` as a user runs it: a process, its environment, its log, its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from cdc.local import PortLease
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.postgres_source import Source

UNCLEAN = ("Task was destroyed", "never retrieved", "never awaited", "Unclosed")
"""What Python writes of tasks and connections that were left lying about."""

_INHERITED = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")


def environment(source: Source, **settings: str) -> dict[str, str]:
    """Return an environment for ``cdc`` that knows the source and nothing of ours."""
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "CDC_POSTGRES__DSN": source.dsn,
        "CDC_SLOT__NAME": source.slot,
        "CDC_SLOT__PLUGIN": source.plugin,
        "CDC_SLOT__PUBLICATION": source.publication,
        "CDC_LOG__FORMAT": "json",
        **settings,
    }


class RelayProcess:
    """A running ``cdc run``.

    Args:
        settings: its whole environment.
        with_http: give it an endpoint; with one it parks where it would exit with 4.

    Attributes:
        log: parsed log lines so far.
        stderr: everything it wrote there, as text.

    """

    def __init__(self, settings: Mapping[str, str], *, with_http: bool = True) -> None:
        self._lease = PortLease()
        self.port = self._lease.port
        listen = {"CDC_HTTP__LISTEN": f"127.0.0.1:{self.port}"} if with_http else {}
        self._settings = {**listen, **settings}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self.log: list[dict[str, Any]] = []
        self.stderr = ""
        self.stdout = b""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()
        self._lease.release()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not exited yet."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, not waiting for anything."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cdc.cli",
            "run",
            env=self._settings,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
            limit=1 << 24,
        )
        self._reader = asyncio.create_task(self._follow(self._process))

    async def streaming(self, deadline_s: float = 30.0) -> None:
        """Wait until it streams; fail with its log if it exits instead."""

        async def is_ready() -> bool:
            if not self.is_running:
                raise RuntimeError(f"cdc run exited:\n{self.stderr}")
            return (await self.get("/readyz"))[0] == 200

        await eventually(is_ready, deadline_s, what="cdc run streams")

    async def logged(self, deadline_s: float = 20.0, **facts: object) -> dict[str, Any]:
        """Wait for a log line with all of these members and return it."""

        def found() -> dict[str, Any] | None:
            for line in self.log:
                if all(line.get(name) == value for name, value in facts.items()):
                    return line
            return None

        line = await eventually(found, deadline_s, what=f"a log line with {facts}")
        assert line is not None
        return line

    async def stop(self, deadline_s: float = 20.0) -> int:
        """Send SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return await self.exited(deadline_s)

    async def exited(self, deadline_s: float = 20.0) -> int:
        """Wait for the exit and return its code; whatever ended it, it left no mess."""
        assert self._process is not None
        assert self._reader is not None
        async with asyncio.timeout(deadline_s):
            code = await self._process.wait()
            await self._reader
        self._lease.release()
        assert [words for words in UNCLEAN if words in self.stderr] == [], self.stderr
        return code

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.exited()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def get(self, path: str) -> tuple[int, str]:
        """GET a path of its HTTP endpoint; (0, "") while nobody answers."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return await asyncio.to_thread(_get, url)

    async def metric(self, name: str, **labels: str) -> float:
        """Return one sample of its metrics page."""
        _status, page = await self.get("/metrics")
        wanted = name
        if labels:
            inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
            wanted = f"{name}{{{inside}}}"
        for line in page.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == wanted:
                return float(value)
        raise AssertionError(f"no sample {wanted}")

    async def status(self) -> dict[str, Any]:
        """Return its /status."""
        parsed: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return parsed

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        assert process.stdout is not None

        async def keep_stdout() -> None:
            assert process.stdout is not None
            while piece := await process.stdout.read(1 << 16):
                self.stdout += piece

        async with asyncio.TaskGroup() as group:
            group.create_task(keep_stdout())
            async for line in process.stderr:
                text = line.decode()
                self.stderr += text
                if text.startswith("{"):
                    self.log.append(json.loads(text))


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


async def cdc(
    *arguments: str, settings: Mapping[str, str], deadline_s: float = 30.0
) -> tuple[int, str, str]:
    """Run a ``cdc`` command to its end; return exit code, stdout and stderr."""
    return await program("cdc.cli", arguments, settings, deadline_s)


async def program(
    module: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    deadline_s: float = 30.0,
) -> tuple[int, str, str]:
    """Run ``python -m module`` to its end; return exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        env=dict(settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(deadline_s):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
