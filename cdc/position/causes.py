"""Why slot and stored position do not belong together, and what can be done."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from cdc.errors import OperatorNeeded

if TYPE_CHECKING:
    from cdc.position.record import Position
    from slots.lsn import Lsn

WAL_REMOVED = "wal_removed"
"""The server's word for a slot that has passed max_slot_wal_keep_size (17 and later
tell it; before that there is no other reason on a primary)."""


class Cause(enum.StrEnum):
    """Why slot and stored position do not belong together."""

    DROPPED = "dropped"
    INVALIDATED = "invalidated"
    MOVED = "moved"
    ANCHOR = "anchor"
    BEHIND = "behind"
    TIMELINE = "timeline"
    CLUSTER = "cluster"
    DATABASE = "database"
    PUBLICATION = "publication"
    DOUBT = "doubt"
    UNFINISHED = "unfinished"


SAME_HISTORY = frozenset(
    {
        Cause.DROPPED,
        Cause.INVALIDATED,
        Cause.MOVED,
        Cause.PUBLICATION,
        Cause.UNFINISHED,
    }
)
"""Causes that say nothing against the history: the stored horizon still means there
what it meant."""


class Disagreement(OperatorNeeded):
    """The slot or the server is not as this relay left it.

    Attributes:
        cause: one word.
        reason: the server's own word for it, such as ``wal_removed``; often empty.
        position: what was stored.
        goes_on_at: where streaming would go on if the gap were accepted; None where
            there is no slot to go on with.
        wal_bytes: written behind the stored position so far, as far as is known.

    """

    kind = "position_mismatch"

    def __init__(
        self,
        message: str,
        *,
        cause: Cause,
        position: Position,
        reason: str = "",
        goes_on_at: Lsn | None = None,
        wal_bytes: int = 0,
    ) -> None:
        super().__init__(message, hint=_hint(cause, position, goes_on_at))
        self.wal_bytes = wal_bytes
        self.cause = cause
        self.reason = reason
        self.position = position
        self.goes_on_at = goes_on_at

    @property
    def is_same_history(self) -> bool:
        """Whether the stored horizon may be used to find what is missing."""
        return self.cause in SAME_HISTORY and not self.position.doubt


class PositionMismatch(Disagreement):
    """Slot or history is not at the position this relay left it at."""

    kind = "position_mismatch"


class SlotGone(Disagreement):
    """The slot was dropped or invalidated while a position is known."""

    kind = "slot_lost"


def mismatch(
    position: Position,
    cause: Cause,
    message: str,
    *,
    goes_on_at: Lsn | None = None,
) -> PositionMismatch:
    """Return the error for a history or slot that is not the one we left."""
    return PositionMismatch(
        message, cause=cause, position=position, goes_on_at=goes_on_at
    )


def _hint(cause: Cause, position: Position, goes_on_at: Lsn | None) -> str:
    return "; or ".join(command for command, _ in choices(cause, position, goes_on_at))


def choices(
    cause: Cause, position: Position, goes_on_at: Lsn | None
) -> list[tuple[str, str]]:
    """Return the commands to choose from, each with what it does."""
    accept = (
        f"cdc adopt --accept-gap {goes_on_at or position.end_lsn}",
        "go on without them: what was not delivered before is given up",
    )
    if cause is Cause.UNFINISHED:
        return [("cdc resnapshot", "go on with the resnapshot that was cut off")]
    if cause in SAME_HISTORY and not position.doubt:
        return [
            (
                "cdc resnapshot",
                "publish what the table has and the broker may lack (--dry-run counts)",
            ),
            accept,
        ]
    return [
        (
            "cdc resnapshot --since TIME (or --all)",
            "on another history: publish rows from a time on, raise the epoch, stream",
        ),
        ("cdc adopt", "take this server as it is: raise the epoch, stream on"),
        ("CDC_NAME=...", "give this relay a name of its own, if it is another one"),
    ]
