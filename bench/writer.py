"""The writing process of a latency measurement: commits at a steady rate.

    python -m bench.writer DSN OUTPUT COMMITS PER_SECOND ROWS

Row ``n`` of the load carries ``n`` in its payload. OUTPUT gets three 64-bit numbers a
commit: its last ``n``, and when it returned by the monotonic and by the wall clock, in
nanoseconds.
"""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path
from typing import Final

import psycopg

from bench.events import PAYLOAD_BYTES

INSERT: Final = (
    "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)"
    " SELECT 'order0', 'order-' || n %% 1000, 'OrderPlaced',"
    f" jsonb_build_object('n', n, 'filler', repeat('x', {PAYLOAD_BYTES - 30}))"
    " FROM generate_series(%s::bigint, %s::bigint) AS n"
)


def write(dsn: str, commits: int, per_second: float, rows: int) -> array[int]:
    """Commit on schedule, at once when late; return what OUTPUT gets."""
    notes = array("q")
    with psycopg.connect(dsn, autocommit=True) as connection:
        begin = time.perf_counter()
        for number in range(commits):
            ahead = begin + number / per_second - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            last = (number + 1) * rows
            connection.execute(INSERT, (last - rows + 1, last))
            notes.extend((last, time.monotonic_ns(), time.time_ns()))
    return notes


def main() -> None:
    """Write, then tell when."""
    dsn, output, commits, per_second, rows = sys.argv[1:]
    notes = write(dsn, int(commits), float(per_second), int(rows))
    Path(output).write_bytes(notes.tobytes())


if __name__ == "__main__":
    main()
