"""Tell alarms: to the log, and to a webhook that never holds the watch up.

A webhook's address is a secret (whoever has it can post): it is in no message and no
log, and errors name no more than its host.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import structlog

from slots.alarms import AlarmState
from slots.errors import BadWebhook
from slots.state import Level

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pydantic import SecretStr

    from slots.alarms import Change

QUEUE_LIMIT: Final = 100
"""Further changes are dropped and counted: a webhook that is down for that long is
not where they are read."""

RETRY_DELAYS_S: Final = (1.0, 5.0, 15.0)
TIMEOUT_S: Final = 5.0
LEAVE_S: Final = 5.0
"""How long what is still to be told may hold up an end."""

_TOO_MANY: Final = 429
_SERVERS_FAULT: Final = 500

_log = structlog.get_logger("slots.alarms")


class AlarmSink(Protocol):
    """Where changes of alarms are told."""

    def tell(self, change: Change, server: str) -> None:
        """Take a change of an alarm at a server; return at once, and never raise."""
        ...


def sentence(change: Change, server: str) -> str:
    """Say a change in one line."""
    alarm = change.alarm
    subject = f"slot {alarm.slot_name}" if alarm.slot_name else "replication slots"
    where = f"{subject} at {server}"
    if change.state is AlarmState.CLEARED:
        return f"CLEARED {alarm.kind}: {where}"
    return f"{alarm.level.name} {alarm.kind}: {where}: {alarm.text}. {alarm.remedy}"


def document(change: Change, server: str) -> dict[str, Any]:
    """Say a change as one JSON body; chat webhooks read its ``text``."""
    alarm = change.alarm
    return {
        "text": sentence(change, server),
        "state": change.state.value,
        "alarm": alarm.kind.value,
        "level": alarm.level.word,
        "was": change.was.word,
        "server": server,
        "slot_name": alarm.slot_name or None,
        "slot_type": alarm.slot_type or None,
        "database": alarm.database or None,
        "detail": alarm.text,
        "remedy": alarm.remedy,
        "since": alarm.since.isoformat(),
        "at": change.at.isoformat(),
    }


class AlarmLog:
    """Tells changes to the log."""

    def tell(self, change: Change, server: str) -> None:
        """Write one line."""
        alarm = change.alarm
        facts = {
            "alarm": alarm.kind.value,
            # "level" is the key of the log line's own.
            "alarm_level": alarm.level.word,
            "slot": alarm.slot_name or None,
            "server": server,
        }
        if change.state is AlarmState.CLEARED:
            _log.info("alarm_cleared", **facts)
            return
        write = _log.error if alarm.level is Level.CRITICAL else _log.warning
        write("alarm_raised", **facts, detail=alarm.text, remedy=alarm.remedy)


class Webhook:
    """Tells changes to an HTTP address, while entered, in order.

    Args:
        url: http or https.

    Attributes:
        failed: how many changes could not be told.

    """

    def __init__(self, url: SecretStr) -> None:
        self._url = url
        parts = urlsplit(url.get_secret_value())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadWebhook("the webhook's address is no http(s) URL")
        self._host = parts.hostname
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_LIMIT)
        self._task: asyncio.Task[None] | None = None
        self.failed = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._deliver(), name="webhook")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._queue.join()
        except TimeoutError:
            _log.warning("webhook_left_untold", changes=self._queue.qsize() + 1)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tell(self, change: Change, server: str) -> None:
        """Put a change in line."""
        try:
            self._queue.put_nowait(document(change, server))
        except asyncio.QueueFull:
            self.failed += 1
            _log.warning("webhook_too_slow", host=self._host, failed=self.failed)

    async def _deliver(self) -> None:
        while True:
            body = await self._queue.get()
            try:
                await self._post(body)
            finally:
                self._queue.task_done()

    async def _post(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        reason = ""
        for delay_s in (0.0, *RETRY_DELAYS_S):
            await asyncio.sleep(delay_s)
            outcome = await asyncio.to_thread(self._send, data)
            if outcome is None:
                return
            reason, is_worth_retry = outcome
            if not is_worth_retry:
                break
        self.failed += 1
        _log.warning(
            "webhook_failed", host=self._host, reason=reason, failed=self.failed
        )

    def _send(self, data: bytes) -> tuple[str, bool] | None:
        """Post once; return what went wrong and whether to try again."""
        request = urllib.request.Request(  # noqa: S310 - http(s) only, see above
            self._url.get_secret_value(),
            data=data,
            headers={"Content-Type": "application/json", "User-Agent": "walferry"},
        )
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S):
                return None
        except urllib.error.HTTPError as exc:
            # A redirect is not followed: the body would be lost on the way.
            exc.close()
            worth = exc.code == _TOO_MANY or exc.code >= _SERVERS_FAULT
            return f"answered {exc.code}", worth
        except urllib.error.URLError as exc:
            return type(exc.reason).__name__, True
        except Exception as exc:  # noqa: BLE001 - whatever a server may answer
            # http.client quotes what it could not understand, the address included.
            return type(exc).__name__, True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        """Follow nothing."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)
