"""The relay as a service: signals, endpoint, exit code; and what surrounds a run."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import structlog

from cdc.app.parts import (
    read_back_of,
    relay_name,
    retention_of,
    sink_of,
    source_of,
    store_of,
)
from cdc.errors import ExitCode, FirstStart
from cdc.lifecycle import OPERATOR, State
from cdc.metrics import RelayMetrics
from cdc.position import Disagreement, screen
from cdc.retention import Pruning
from cdc.session import Session
from cdc.supervisor import Patience, Supervisor
from slots.connect import address
from slots.endpoint import Endpoint
from slots.metrics import SlotMetrics
from slots.notify import AlarmLog, Webhook
from slots.state import Finding, Kind, Level
from slots.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from cdc.settings import Settings
    from cdc.sinks import Sink
    from cdc.supervisor import Attempt
    from slots.notify import AlarmSink

UNREADY_AFTER_S: Final = 60.0
"""A commit that waits longer for its acknowledgement makes the relay not ready."""

_NS_PER_MS: Final = 1_000_000

_log = structlog.get_logger("cdc.app")


async def run_relay(settings: Settings) -> ExitCode:
    """Run until a signal, or until the supervisor gives up; return the exit code."""
    service = Service(settings, sink_of(settings), RelayMetrics())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.supervisor.stop)
    try:
        code = await service.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if code is ExitCode.OPERATOR:
        sys.stderr.writelines(f"{line}\n" for line in service.screen())
    return code


class Service:
    """A supervisor with its endpoint.

    Args:
        settings: all of them.
        sink: where events go.
        metrics: what is counted.

    """

    def __init__(self, settings: Settings, sink: Sink, metrics: RelayMetrics) -> None:
        self._settings = settings
        self._sink = sink
        self._metrics = metrics
        self._store = store_of(settings)
        self._source = source_of(settings)
        self._session: Session | None = None
        self.supervisor = Supervisor(
            self._attempt,
            Patience(
                startup_timeout_s=settings.startup_timeout_s,
                slot_wait_s=settings.slot.wait_s,
                backoff_initial_s=settings.backoff.initial_s,
                backoff_max_s=settings.backoff.max_s,
                parks=settings.http.listen is not None,
            ),
            metrics,
            recovery=self._recovery,
        )

    async def run(self) -> ExitCode:
        """Serve the endpoint, if one is wanted, and carry rows."""
        async with AsyncExitStack() as stack:
            watch = await self._watch(stack)
            if self._settings.http.listen is not None:
                endpoint = await stack.enter_async_context(
                    Endpoint(
                        self._settings.http.listen,
                        registry=self._metrics.registry,
                        ready=self.ready,
                        status=self.status,
                    )
                )
                host, port = endpoint.address
                _log.info("listening", host=host, port=port)
            self._introduce()
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._look(watch), name="slot watch")]
                if self._settings.retention.keep_s is not None:
                    pruning = self._pruning(self._settings.retention.keep_s)
                    beside.append(group.create_task(pruning.run(), name="pruning"))
                code = await self.supervisor.run()
                for task in beside:
                    task.cancel()
            return code

    def _pruning(self, keep_s: float) -> Pruning:
        return Pruning(
            self._source.target,
            self._source.wanted.tables,
            retention_of(self._settings, keep_s),
            interval_s=self._settings.retention.interval_s,
            horizon=self._horizon,
        )

    def _horizon(self) -> int | None:
        return None if self._session is None else self._session.horizon

    def _introduce(self) -> None:
        settings = self._settings
        _log.info(
            "starting",
            version=version("walferry"),
            source=address(self._source.target),
            plugin=settings.slot.plugin,
            tables=settings.outbox.tables,
            sink=settings.sink,
        )

    async def _look(self, watch: Watch) -> NoReturn:
        """Keep the watch going; a mistake in it must not end the relay."""
        while True:
            try:
                await watch.run()
            except Exception as exc:  # noqa: BLE001 - shown, and tried again
                _log.error("slot_watch_failed", exc_info=exc)
            await asyncio.sleep(self._settings.alarms.interval_s)

    async def _watch(self, stack: AsyncExitStack) -> Watch:
        """Make the watch over our own slot; alarms go to log, metrics and webhook."""
        alarms = self._settings.alarms
        limits = alarms.limits()
        names = (self._settings.slot.name,)
        sinks: list[AlarmSink] = [AlarmLog()]
        if alarms.notify is not None:
            sinks.append(await stack.enter_async_context(Webhook(alarms.notify)))
        watch = Watch(
            self._source.target,
            limits=limits,
            names=names,
            interval_s=alarms.interval_s,
            sinks=sinks,
            metrics=SlotMetrics(self._metrics.registry, limits=limits, names=names),
        )
        watch.consumer = self._waits_for_operator
        return watch

    def _waits_for_operator(self) -> tuple[str, Finding] | None:
        """Tell the watch what an operator has to decide."""
        if self.supervisor.state not in OPERATOR or self.supervisor.failure is None:
            return None
        failure = self.supervisor.failure
        finding = Finding(
            kind=Kind.CONSUMER,
            level=Level.CRITICAL,
            text=f"the relay has stopped: {failure}",
            remedy=getattr(failure, "hint", "") or "see its log",
        )
        return self._settings.slot.name, finding

    def ready(self) -> tuple[bool, str]:
        """Tell whether rows flow, and why not."""
        supervisor = self.supervisor
        if supervisor.state is not State.STREAMING:
            return False, f"{supervisor.state}: {supervisor.reason}".rstrip(": ")
        if self._sink.troubles:
            return False, self._sink.troubles[0]
        waits_s = self._metrics.oldest_unacked_s()
        if waits_s > UNREADY_AFTER_S:
            return False, f"an event waits {waits_s:.0f} s for its acknowledgement"
        return True, "streaming"

    def status(self) -> dict[str, object]:
        """Tell the present state, for /status."""
        is_ready, reason = self.ready()
        return {
            "name": relay_name(self._settings),
            "slot": self._settings.slot.name,
            "plugin": self._settings.slot.plugin,
            "sink": self._settings.sink,
            "state": self.supervisor.state.value,
            "ready": is_ready,
            "reason": reason,
            "troubles": list(self._sink.troubles),
            "confirmed_lsn": str(self._metrics.confirmed_lsn),
            "screen": self.screen(),
            "oldest_unacked_s": self._metrics.oldest_unacked_s(),
            "server_notice": self._server_notice(),
        }

    def screen(self) -> list[str]:
        """Tell what an operator has to decide, line by line; often nothing."""
        failure = self.supervisor.failure
        if not isinstance(failure, Disagreement):
            return []
        return screen(failure, now_ms=time.time_ns() // _NS_PER_MS)

    def _server_notice(self) -> str:
        """Give what the server said last, such as a standby that it waits for."""
        session = self._session
        if session is None or session.stream is None:
            return ""
        return session.stream.server_notice

    def _recovery(self, exc: Exception) -> Attempt | None:
        if not isinstance(exc, Disagreement | FirstStart):
            return None
        from cdc.app.recovery import (  # noqa: PLC0415 - only what is used
            ProgressLog,
            automatic_request,
        )
        from cdc.resnapshot import Resnapshot  # noqa: PLC0415

        request = automatic_request(self._settings, exc)
        if request is None:
            return None
        return Resnapshot(
            self._source,
            self._sink,
            self._store,
            read_back_of(self._settings),
            request=request,
            told=ProgressLog(),
        )

    def _attempt(self, started: Callable[[], None]) -> Session:
        self._session = Session(
            self._source, self._sink, self._store, self._metrics, started=started
        )
        return self._session
