"""Transaction ids of rows, made as wide as those of snapshots.

A row shows the lower half of the id of the transaction that inserted it. A visible one
is older than the reading snapshot's xmax, so it is the highest number at or below xmax
that ends in those 32 bits. A row frozen more than four billion transactions ago comes
out too high: it is looked at again, never left out.
"""

from __future__ import annotations

from typing import Final

MASK: Final = (1 << 32) - 1

WIDENED: Final = f"({{xmax}} - (({{xmax}} - {{xmin}}::text::int8) & {MASK}))"
"""SQL for it: ``xmin`` is a column, ``xmax`` an int8 expression, that of the snapshot
which reads the row. One read before would put rows near an epoch's end on the wrong
side."""

SNAPSHOT_XMAX: Final = (
    "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8"
)
"""SQL for the xmax of the snapshot that the statement reads with."""


def widen(xmin: int, xmax: int) -> int:
    """Return the full id of a row's transaction.

    Args:
        xmin: the row's, 32 bits.
        xmax: of the snapshot that reads the row, 64 bits.

    """
    return xmax - ((xmax - xmin) & MASK)
