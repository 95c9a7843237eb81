"""How far a relay is, on which history, and whether the server agrees.

Pure: the record, the horizon that bounds what may be unpublished, the judgement at each
connect, and the gate that holds the stream's beginning back until the anchor has come.
"""

from cdc.position.agreement import (
    Seen,
    SlotSeen,
    agree,
    changed_parts,
    changed_publication,
    continued,
    history_end,
    waits_for_promotion,
)
from cdc.position.causes import (
    Cause,
    Disagreement,
    PositionMismatch,
    SlotGone,
    choices,
    mismatch,
)
from cdc.position.gate import Gate
from cdc.position.horizon import (
    acknowledged,
    horizon_at,
    read_back_from_ms,
    sampled,
)
from cdc.position.record import Anchor, Overlap, Position, Sample, Unfinished, parse
from cdc.position.screen import screen

__all__ = [
    "Anchor",
    "Cause",
    "Disagreement",
    "Gate",
    "Overlap",
    "Position",
    "PositionMismatch",
    "Sample",
    "Seen",
    "SlotGone",
    "SlotSeen",
    "Unfinished",
    "acknowledged",
    "agree",
    "changed_parts",
    "changed_publication",
    "choices",
    "continued",
    "history_end",
    "horizon_at",
    "mismatch",
    "parse",
    "read_back_from_ms",
    "sampled",
    "screen",
    "waits_for_promotion",
]
