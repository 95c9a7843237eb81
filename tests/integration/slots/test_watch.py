"""``slots watch`` as a process: metrics, alarms, outages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from cdc.local import PortLease
from slots import catalog
from slots import watch as watch_module
from slots.connect import Target
from slots.watch import Watch
from tests.waiting import eventually
from tests.webhook_receiver import WebhookReceiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.slot_stage import Stage

pytestmark = pytest.mark.postgres

SECRET = "s3cr3t-token"  # noqa: S105 - a test's
LABELS = '{database="postgres",slot_name="orders",slot_type="logical"}'


class Watching:
    """A running ``slots watch``."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self._port = port

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(self._get, path)

    async def metrics(self) -> dict[str, float]:
        _, text = await self.get("/metrics")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines)}

    def _get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self._port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()
        except urllib.error.URLError:
            return 0, ""

    async def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
        self.process.send_signal(number)
        async with asyncio.timeout(20):
            out, err = await self.process.communicate()
        return out.decode(), err.decode()


@asynccontextmanager
async def watching(
    stage: Stage, *arguments: str, **variables: str
) -> AsyncIterator[Watching]:
    with PortLease() as lease:
        listen = f"127.0.0.1:{lease.port}"
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("slots")),
            *("watch", "--interval", "0.1s", "--listen", listen, *arguments),
            env=os.environ
            | {"CDC_POSTGRES__DSN": stage.target.dsn.get_secret_value()}
            | variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield Watching(process, lease.port)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver(SECRET).serving() as running:
        yield running


def posted(receiver: WebhookReceiver) -> list[tuple[Any, ...]]:
    return [
        (body["state"], body["alarm"], body["level"], body["slot_name"])
        for body in receiver.bodies
    ]


async def test_alarms_are_posted_and_shown_when_raised_and_cleared(
    stage: Stage, receiver: WebhookReceiver
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    limits = ("--limit", "lag=4MB:1GB", "--limit", "inactive=off")
    async with watching(stage, *limits, SLOTS_NOTIFY=receiver.url) as watch:

        async def is_ready() -> bool:
            return (await watch.get("/readyz"))[0] == 200

        await eventually(is_ready)
        assert (await watch.metrics())["walferry_slots_poll_success"] == 1

        await stage.write(6)
        await eventually(lambda: len(receiver.bodies) == 1)
        shown = await watch.metrics()
        assert shown[f"walferry_slot_lag_bytes{LABELS}"] > 6_000_000
        assert any('alarm="lag"' in name for name in shown)
        status = json.loads((await watch.get("/status"))[1])
        assert status["slots"][0]["verdict"] == "warning"

        await stage.confirm_all("orders")
        await eventually(lambda: len(receiver.bodies) == 2)
        out, err = await watch.end()

    assert watch.process.returncode == 0
    assert posted(receiver) == [
        ("raised", "lag", "warning", "orders"),
        ("cleared", "lag", "warning", "orders"),
    ]
    assert "orders" in out
    assert "alarm_raised" in err
    assert SECRET not in out + err


async def test_an_outage_is_an_alarm_and_no_number_survives_it(
    stage: Stage, receiver: WebhookReceiver
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    limits = ("--limit", "inactive=off")
    async with watching(stage, *limits, SLOTS_NOTIFY=receiver.url) as watch:

        async def shows(value: float) -> bool:
            shown = await watch.metrics()
            return shown.get("walferry_slots_poll_success") == value

        await eventually(lambda: shows(1))

        await asyncio.to_thread(stage.server.stop, "immediate")
        await eventually(lambda: shows(0))
        assert f"walferry_slot_lag_bytes{LABELS}" not in await watch.metrics()
        code, reason = await watch.get("/readyz")
        assert code == 503
        assert f"127.0.0.1:{stage.server.port}/postgres as postgres: " in reason
        assert (await watch.get("/livez"))[0] == 200
        assert "error" in json.loads((await watch.get("/status"))[1])

        await asyncio.to_thread(stage.server.start)
        await eventually(lambda: shows(1))
        await eventually(lambda: len(receiver.bodies) == 2)
        _, err = await watch.end(signal.SIGINT)

    assert watch.process.returncode == 0
    assert posted(receiver) == [
        ("raised", "reading_failed", "warning", None),
        ("cleared", "reading_failed", "warning", None),
    ]
    assert err.count("slots_not_read") == 1
    assert "Traceback" not in err


async def test_a_webhook_that_hangs_does_not_hold_the_watch_up(
    stage: Stage, receiver: WebhookReceiver
) -> None:
    await catalog.create_slot(stage.admin, "orders")
    receiver.gate.clear()
    async with watching(
        stage, "--limit", "inactive=0.1s", SLOTS_NOTIFY=receiver.url
    ) as watch:

        async def shows_alarm() -> bool:
            return any('alarm="inactive"' in name for name in await watch.metrics())

        await eventually(shows_alarm)
        await stage.write(3)

        async def moves() -> bool:
            shown = await watch.metrics()
            return shown.get(f"walferry_slot_lag_bytes{LABELS}", 0) > 3_000_000

        await eventually(moves)
        receiver.gate.set()
        await watch.end()


async def test_an_address_in_use_is_one_line_with_the_remedy(stage: Stage) -> None:
    with PortLease() as lease:
        listen = f"127.0.0.1:{lease.port}"
        server = await asyncio.start_server(
            lambda _r, _w: None, "127.0.0.1", lease.port
        )
        async with server:
            process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("slots")),
                *("watch", "--listen", listen),
                *("--dsn", stage.target.dsn.get_secret_value()),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, err = await process.communicate()

    assert process.returncode == 1
    assert err.decode().startswith(f"slots: cannot listen on {listen}: ")
    assert err.count(b"\n") == 1


async def test_a_server_that_does_not_answer_is_a_failed_reading_in_time(
    stage: Stage, proxy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "READING_LIMIT_S", 0.5)
    between = await proxy("127.0.0.1", stage.server.port)
    dsn = f"postgresql://postgres@127.0.0.1:{between.port}/postgres"
    watch = Watch(Target(dsn=SecretStr(dsn)))
    assert (await watch.poll()).reading is not None

    between.stall()
    async with asyncio.timeout(10):
        view = await watch.poll()

    assert view.reading is None
    assert "no answer within 0.5 s" in str(view.error)
    between.resume()

    async def reads_again() -> bool:
        return (await watch.poll()).reading is not None

    await eventually(reads_again)
    await watch.close()


async def test_a_watch_over_a_silent_server_ends_at_once_when_it_is_told_to(
    stage: Stage, proxy: Callable[..., Any]
) -> None:
    between = await proxy("127.0.0.1", stage.server.port)
    dsn = f"postgresql://postgres@127.0.0.1:{between.port}/postgres"
    watch = Watch(Target(dsn=SecretStr(dsn)), interval_s=0.01)
    running = asyncio.create_task(watch.run())
    await eventually(lambda: watch.latest is not None)

    between.stall()
    running.cancel()

    async with asyncio.timeout(2):
        await asyncio.wait({running})
    assert running.cancelled()
