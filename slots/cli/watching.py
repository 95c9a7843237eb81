"""``slots watch``: a live view, or plain lines in a pipe; metrics; a webhook."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer
from prometheus_client import CollectorRegistry, Gauge
from pydantic import SecretStr
from rich.live import Live

from slots.cli import documents, screen, tables
from slots.cli.options import (
    LimitTexts,
    Names,
    UsageMistake,
    on_server,
    read_limits,
    read_seconds,
)
from slots.endpoint import Endpoint
from slots.metrics import SlotMetrics
from slots.notify import AlarmLog, Webhook
from slots.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from slots.connect import Target
    from slots.notify import AlarmSink
    from slots.state import Limits
    from slots.watch import View

_SHORTEST_INTERVAL_S = 0.1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "watch",
        epilog="Example: slots watch --listen 127.0.0.1:9187 --limit lag=1GB:5GB",
    )(on_server(_watch))


def _watch(  # noqa: PLR0913 - an argument an option
    target: Target,
    names: Names = None,
    *,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Between two looks.")
    ] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            envvar="SLOTS_LISTEN",
            metavar="HOST:PORT",
            help="Serve /metrics, /status, /livez and /readyz there.",
        ),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            envvar="SLOTS_NOTIFY",
            metavar="URL",
            help="Post there when an alarm is raised or cleared.",
        ),
    ] = None,
    limit: LimitTexts = None,
) -> None:
    """Watch slots: see them move, be told what becomes wrong."""
    interval_s = read_seconds(interval, "--interval")
    if interval_s < _SHORTEST_INTERVAL_S:
        raise UsageMistake(f"--interval: at least {_SHORTEST_INTERVAL_S} s")
    _log_to_stderr()
    watching = _Watching(target, names or [], read_limits(limit))
    asyncio.run(
        _until_signal(
            watching.run(
                interval_s=interval_s,
                once=once,
                listen=listen,
                notify=SecretStr(notify) if notify else None,
            )
        )
    )


async def _until_signal(watching: Coroutine[Any, Any, None]) -> None:
    """Run until the end, SIGINT or SIGTERM; what is to be told is told first."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None:
        raise AssertionError("asyncio.run runs a task")
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await watching


class _Watching:
    """A watch with everything that shows or tells what it sees."""

    def __init__(self, target: Target, names: list[str], limits: Limits) -> None:
        self._target = target
        self._names = names
        self._limits = limits
        self._registry = CollectorRegistry()
        build = Gauge(
            "walferry_build_info",
            "Which walferry this is",
            ["version"],
            registry=self._registry,
        )
        build.labels(version("walferry")).set(1)
        self._watch: Watch | None = None

    async def run(
        self,
        *,
        interval_s: float,
        once: bool,
        listen: str | None,
        notify: SecretStr | None,
    ) -> None:
        """Look until interrupted; once, if asked."""
        is_live = sys.stdout.isatty() and not once
        async with AsyncExitStack() as stack:
            sinks: list[AlarmSink] = [] if is_live or once else [AlarmLog()]
            if notify is not None:
                sinks.append(await stack.enter_async_context(Webhook(notify)))
            self._watch = Watch(
                self._target,
                limits=self._limits,
                names=self._names,
                interval_s=interval_s,
                sinks=sinks,
                metrics=SlotMetrics(
                    self._registry, limits=self._limits, names=self._names
                ),
            )
            stack.push_async_callback(self._watch.close)
            if listen is not None:
                await stack.enter_async_context(self._endpoint(listen))
            if is_live:
                await self._show(self._watch, interval_s)
            else:
                await self._print(self._watch, interval_s, once=once)

    async def _show(self, watch: Watch, interval_s: float) -> None:
        console = tables.console()
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                view = await watch.poll()
                picture = screen.picture(
                    view,
                    self._limits,
                    server=watch.server,
                    names=self._names,
                    size=console.size,
                )
                live.update(picture, refresh=True)
                await asyncio.sleep(interval_s)

    async def _print(self, watch: Watch, interval_s: float, *, once: bool) -> None:
        while True:
            view = await watch.poll()
            for line in screen.plain_lines(view, self._limits, self._names):
                typer.echo(line)
            sys.stdout.flush()
            if once:
                if view.error is not None:
                    raise view.error
                return
            await asyncio.sleep(interval_s)

    def _endpoint(self, listen: str) -> Endpoint:
        return Endpoint(
            listen, registry=self._registry, ready=self._ready, status=self._status
        )

    def _latest(self) -> View | None:
        return None if self._watch is None else self._watch.latest

    def _ready(self) -> tuple[bool, str]:
        view = self._latest()
        if self._watch is None or view is None:
            return False, "not looked yet"
        if view.error is None:
            return True, "watching"
        reason = str(view.error)
        if self._watch.server not in reason:
            reason = f"{self._watch.server}: {reason}"
        return False, reason

    def _status(self) -> Mapping[str, Any]:
        view = self._latest()
        if view is None or view.reading is None:
            error = None if view is None else view.error
            return {"error": None if error is None else str(error)}
        slots = screen.watched(view.reading, self._names)
        document = documents.listing(view.reading, slots, view.history, self._limits)
        del document["schema_version"]
        return document


def _log_to_stderr() -> None:
    """Keep stdout for the view."""
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
