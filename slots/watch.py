"""Look at a server's slots again and again, and tell what becomes wrong.

``cdc run`` runs it as a task beside the relay; it needs nothing of a relay's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from slots import catalog
from slots.alarms import Alarms
from slots.connect import address, answer_of, connect
from slots.errors import SlotError
from slots.state import History, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import NoReturn

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from slots.alarms import Alarm, Change
    from slots.connect import Target
    from slots.metrics import SlotMetrics
    from slots.notify import AlarmSink
    from slots.state import Finding, Reading

DEFAULT_INTERVAL_S: Final = 10.0
"""A fast writer can take a slot from reserved to lost between two checkpoints; a poll
costs the server two milliseconds."""

READING_LIMIT_S: Final = 10.0
_APPLICATION: Final = "walferry slots"
_DEFAULT_LIMITS: Final = Limits()

_log = structlog.get_logger("slots.watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one poll has shown.

    Attributes:
        reading: None when it failed.
        error: why, then.
        history: of this and earlier polls.
        alarms: every alarm that is up, the worst first.
        changes: of alarms, by this poll.

    """

    reading: Reading | None
    error: SlotError | None
    history: History
    alarms: tuple[Alarm, ...]
    changes: tuple[Change, ...]


class Watch:
    """The slots of one server, watched.

    Args:
        target: the server; any role that may connect will do, with pg_monitor it can
            name sessions fully.
        limits: from when on something is worth an alarm.
        names: the slots that have to be there; empty watches whatever is there.
        interval_s: between two polls of :meth:`run`.
        sinks: where alarms are told.
        metrics: where the latest reading is shown.

    Attributes:
        consumer: asked at each poll for what the consumer of a slot says of itself;
            set by who runs beside one.

    """

    def __init__(
        self,
        target: Target,
        *,
        limits: Limits = _DEFAULT_LIMITS,
        names: Collection[str] = (),
        interval_s: float = DEFAULT_INTERVAL_S,
        sinks: Sequence[AlarmSink] = (),
        metrics: SlotMetrics | None = None,
    ) -> None:
        self.consumer: Callable[[], tuple[str, Finding] | None] = lambda: None
        self._target = replace(target, application_name=_APPLICATION)
        self._interval_s = interval_s
        self._sinks = tuple(sinks)
        self._metrics = metrics
        self._alarms = Alarms(limits, names=names)
        self._connection: AsyncConnection[TupleRow] | None = None
        self._history = History()
        self._has_failed = False
        self.server = address(target)
        self.latest: View | None = None

    async def run(self) -> NoReturn:
        """Poll until cancelled; failures are alarms, not an end."""
        try:
            while True:
                await self.poll()
                await asyncio.sleep(self._interval_s)
        finally:
            await self.close()

    async def poll(self) -> View:
        """Look once: read, judge, tell; a failure to read is part of the view."""
        try:
            reading = await self._read()
        except SlotError as exc:
            await self.close()
            changes = self._alarms.failed(str(exc), datetime.now(UTC))
            view = self._view(None, exc, changes)
            if not self._has_failed:
                _log.warning("slots_not_read", reason=str(exc), remedy=exc.hint)
        else:
            changes = self._alarms.observe(
                reading, self._history, consumer=self.consumer()
            )
            view = self._view(reading, None, changes)
        self._has_failed = view.reading is None
        self._tell(view)
        self.latest = view
        return view

    async def close(self) -> None:
        """Give the connection back; the next poll opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _read(self) -> Reading:
        connection = self._connection
        if connection is None or connection.closed:
            connection = await connect(self._target, timeout_s=READING_LIMIT_S)
            self._connection = connection
        return await answer_of(
            catalog.read(connection),
            connection,
            limit_s=READING_LIMIT_S,
            where=self.server,
        )

    def _view(
        self,
        reading: Reading | None,
        error: SlotError | None,
        changes: tuple[Change, ...],
    ) -> View:
        return View(
            reading=reading,
            error=error,
            history=self._history,
            alarms=self._alarms.up,
            changes=changes,
        )

    def _tell(self, view: View) -> None:
        if self._metrics is not None:
            if view.reading is None:
                self._metrics.poll_failed(view.alarms)
            else:
                self._metrics.poll_succeeded(view.reading, view.history, view.alarms)
        for change in view.changes:
            for sink in self._sinks:
                sink.tell(change, self.server)
