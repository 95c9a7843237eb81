"""What an operator is shown: one screen, from what happened to the commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cdc.position.causes import Cause, choices

if TYPE_CHECKING:
    from cdc.position.causes import Disagreement
    from cdc.position.record import Position

_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def screen(found: Disagreement) -> list[str]:
    """Return one screen: what happened, since when, what may be missing, what to do."""
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
