"""When a resnapshot is made without being asked for, and how it tells its progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from cdc.errors import FirstStart
from cdc.position import Cause, Disagreement
from cdc.recovery_plan import FIRST
from cdc.resnapshot import Request

if TYPE_CHECKING:
    from cdc.republishing import Progress
    from cdc.settings import Settings

_EVERY_S: Final = 5.0

_log = structlog.get_logger("cdc.resnapshot")


def automatic_request(settings: Settings, exc: Exception) -> Request | None:
    """Return the resnapshot that answers what ended a session, if the settings do.

    At most one for each cause: a slot that is lost again for the same reason needs
    somebody to raise a limit, not another round. An operator's own command starts the
    count anew. On another history nothing is done automatically.
    """
    if isinstance(exc, FirstStart):
        return Request(bounds={FIRST: ""}, may_drop=False)
    if not isinstance(exc, Disagreement):
        return None
    unfinished = exc.position.unfinished
    if exc.cause is Cause.UNFINISHED and unfinished is not None:
        is_ours = FIRST in unfinished.bounds and settings.snapshot == "outbox"
        if is_ours or settings.on_slot_loss == "resnapshot":
            return Request(bounds={}, may_drop=True)
        return None
    answers = f"{exc.cause}:{exc.reason}"
    is_allowed = settings.on_slot_loss == "resnapshot" and exc.is_same_history
    if not is_allowed or answers in exc.position.recovered:
        return None
    return Request(bounds={}, may_drop=True, answers=answers)


class ProgressLog:
    """Tells the progress of a resnapshot in the log, a line now and then."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Tell it, unless it was told just now."""
        now = time.monotonic()
        if now - self._told_at < _EVERY_S and progress.rows < progress.total:
            return
        self._told_at = now
        _log.info(
            "resnapshot",
            rows=progress.rows,
            of=progress.total,
            published=progress.published,
            bytes=progress.size_bytes,
            rows_per_s=round(progress.rate()),
        )
