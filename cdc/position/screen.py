"""What an operator is shown: one screen, from what happened to the commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cdc.position.causes import Cause, choices

if TYPE_CHECKING:
    from cdc.position.causes import Disagreement
    from cdc.position.record import Position

_MB: Final = 1 << 20
_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def screen(found: Disagreement, *, now_ms: int) -> list[str]:
    """Return one screen: what happened, since when, what may be missing, what to do.

    Args:
        found: what the relay stopped for.
        now_ms: milliseconds since 1970, for the rate of WAL since then.

    """
    position = found.position
    left_at = datetime.fromtimestamp(position.stored_at_ms / 1000, UTC)
    lines = [
        f"walferry stopped: {found}",
        "",
        f"  relay           {position.name}",
        f"  slot, database  {position.slot}, {position.database}",
        f"  last position   {position.end_lsn}, stored {left_at:{_TIME}}",
        f"  last event      {_last_event(position)}",
        f"  may be missing  {_window(found)}",
        f"  WAL since then  {_written(found, now_ms)}",
        "",
        "Nothing is published until you choose:",
    ]
    for command, effect in choices(found.cause, position, found.goes_on_at):
        lines += [f"  {command}", f"      {effect}"]
    return lines


def _last_event(position: Position) -> str:
    anchor = position.anchor
    if anchor is None:
        return "none yet"
    at = datetime.fromtimestamp(anchor.committed_at_us / 1_000_000, UTC)
    return f"transaction {anchor.xid}, ends at {anchor.end_lsn}, committed {at:{_TIME}}"


def _window(found: Disagreement) -> str:
    end_lsn = found.position.end_lsn
    if not found.is_same_history:
        return "unknown: positions of another history cannot be compared"
    if found.cause is Cause.MOVED and found.goes_on_at is not None:
        return f"what committed between {end_lsn} and {found.goes_on_at}"
    return f"what committed behind {end_lsn}"


def _written(found: Disagreement, now_ms: int) -> str:
    seconds = (now_ms - found.position.stored_at_ms) / 1000
    if found.wal_bytes <= 0 or seconds <= 0:
        return "unknown"
    per_hour = found.wal_bytes / seconds * 3600
    return f"{found.wal_bytes / _MB:.0f} MB, {per_hour / _MB:.0f} MB an hour"
