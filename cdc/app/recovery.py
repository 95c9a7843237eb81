"""Resnapshot and replay as commands, or without being asked for; what they tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from cdc.app.parts import read_back_of, sink_of, source_of, store_of
from cdc.errors import FirstStart
from cdc.position import Cause, Disagreement
from cdc.recovery_plan import FIRST
from cdc.replay import replay
from cdc.resnapshot import Request, Resnapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.replay import Wish
    from cdc.republishing import Progress
    from cdc.resnapshot import Report
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


async def resnapshot_once(
    settings: Settings, request: Request, told: Callable[[Progress], None]
) -> Report:
    """Make a resnapshot as asked for; see :class:`cdc.resnapshot.Resnapshot`."""
    made = Resnapshot(
        source_of(settings),
        sink_of(settings),
        store_of(settings),
        read_back_of(settings),
        request=request,
        told=told,
    )
    await made.run()
    if made.report is None:
        raise AssertionError("a resnapshot that has ended has a report")
    return made.report


async def replay_once(
    settings: Settings, wish: Wish, told: Callable[[Progress], None]
) -> tuple[str, Progress]:
    """Publish rows again; see :func:`cdc.replay.replay`."""
    return await replay(
        source_of(settings), sink_of(settings), store_of(settings), wish, told
    )


def report_lines(report: Report) -> list[str]:
    """Return what was done, and what could not be."""
    progress, plan = report.progress, report.plan
    rate = progress.rows / max(report.seconds, 1e-9)
    published = "would be published" if report.begins_at is None else "published"
    size = f"{progress.size_bytes} bytes, {rate:.0f} rows/s"
    lines = [
        f"{progress.rows} rows looked at, {progress.present} were there already",
        f"{progress.published} {published} ({size})",
    ]
    if report.begins_at is None:
        return lines
    lines.append(f"slot {plan.position.slot} begins at {report.begins_at}")
    lines.append(
        f"not brought back: rows of {report.window()} that are not in the table any"
        " more (deleted after the insert, or pruned)"
    )
    return lines


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
