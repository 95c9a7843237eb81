"""What a round of pruning did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(slots=True, kw_only=True)
class TablePruned:
    """What happened to one table.

    Attributes:
        table: its name, as the settings have it.
        deleted: rows; those that would be, in a dry run.
        dropped: names of partitions.
        unacknowledged: rows that are old enough and not certainly acknowledged.
        oldest: time of the oldest row that is left; a resnapshot reaches back so far.
        warnings: one line each.

    """

    table: str
    deleted: int = 0
    dropped: list[str] = field(default_factory=list)
    unacknowledged: int = 0
    oldest: datetime | None = None
    warnings: list[str] = field(default_factory=list)

    def lines(self, *, dry_run: bool) -> list[str]:
        """Return it in words."""
        verb = "would be deleted" if dry_run else "deleted"
        lines = [f"{self.table}: {self.deleted} rows {verb}"]
        if self.dropped:
            verb = "would be dropped" if dry_run else "dropped"
            lines.append(f"{self.table}: {', '.join(self.dropped)} {verb}")
        if self.unacknowledged:
            lines.append(
                f"{self.table}: {self.unacknowledged} rows are old enough and not"
                " certainly acknowledged; they stay"
            )
        reach = (
            "has no rows" if self.oldest is None else f"reaches back to {self.oldest}"
        )
        lines.append(f"{self.table}: a resnapshot {reach}")
        return [*lines, *self.warnings]

    def facts(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "table": self.table,
            "deleted": self.deleted,
            "dropped": self.dropped,
            "unacknowledged": self.unacknowledged,
            "oldest": self.oldest and self.oldest.isoformat(),
            "warnings": self.warnings,
        }
