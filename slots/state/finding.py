"""One thing that is wrong with a slot, or with the server's slots as a whole."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slots.state.limits import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slots.state.slot import Slot


class Kind(enum.StrEnum):
    """What can be wrong; the names are labels of metrics, and sections of the runbook.

    Failover is for ``slots check --failover`` alone; consumer is what a relay says of
    itself.
    """

    LOST = "lost"
    UNRESERVED = "unreserved"
    AHEAD = "ahead"
    RETAINED = "retained"
    LAG = "lag"
    BUDGET = "budget"
    TIME_TO_LOSS = "time_to_loss"
    TRANSACTION_GAP = "transaction_gap"
    TRANSACTION_AGE = "transaction_age"
    INACTIVE = "inactive"
    NO_PROGRESS = "no_progress"
    XMIN_AGE = "xmin_age"
    FAILOVER = "failover"
    REPLACED = "replaced"
    MISSING = "missing"
    CONSUMER = "consumer"
    SLOT_COUNT = "slot_count"
    NO_WAL_LIMIT = "no_wal_limit"
    READING_FAILED = "reading_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        text: the fact, with its numbers; the slot's name is not in it.
        remedy: what to do.

    """

    kind: Kind
    level: Level
    text: str
    remedy: str


LOSS_REASONS: Final = {
    "wal_removed": "it needed more WAL than max_slot_wal_keep_size allows",
    "rows_removed": "rows it needed were removed on the primary",
    "wal_level_insufficient": "wal_level on the primary is below logical",
    "idle_timeout": "nobody used it for idle_replication_slot_timeout",
}


def worst(findings: Iterable[Finding]) -> Level:
    """Return the highest level; OK for none."""
    return max((one.level for one in findings), default=Level.OK)


def loss_reason(slot: Slot) -> str:
    """Say why a slot is lost, as far as the server tells."""
    reason = slot.invalidation_reason
    if reason is None:
        reason = "rows_removed" if slot.conflicting else "wal_removed"
    return f"{reason}: {LOSS_REASONS.get(reason, 'see the server log')}"
