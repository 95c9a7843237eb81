"""However large a transaction is, the relay's memory is not."""

from __future__ import annotations

import logging
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.stage import Stage

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.kafka]

MEGABYTE = 1 << 20
LIMIT_BYTES = 150 * MEGABYTE

_log = logging.getLogger(__name__)


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had resident so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def carried_in_one_transaction(stage: Stage, count: int) -> int:
    """Carry a transaction of so many events of 300 bytes; return the peak of memory."""
    async with stage.relay() as relay:
        await relay.streaming()
        await stage.source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
            " SELECT 'o', 'k' || n % 1000, 't',"
            "        to_jsonb(lpad(n::text, 298, 'x'))"
            f" FROM generate_series(1, {count}) n"
        )
        took_s = await stage.caught_up(300.0)
        peak = peak_bytes(relay.pid)
        assert await relay.stop() == 0
    _log.info("%d events: %.1f s, %.0f MiB at most", count, took_s, peak / MEGABYTE)
    await every_event_is_there(stage, count)
    return peak


async def every_event_is_there(stage: Stage, count: int) -> None:
    """Each once, in the order of its key, the last one marked."""
    seen = 0
    last: Counter[bytes] = Counter()
    marked = []
    for record in await stage.topics.read_to_end(stage.topic, 240.0):
        number = int(record.value.strip(b'"x'))
        assert number > last[record.key], "out of order"
        last[record.key] = number
        seen += 1
        if record.headers[-1][0] == "cdc.last":
            marked.append(number)
    assert seen == count
    assert marked == [count]


async def test_a_transaction_of_fifty_thousand_events_needs_no_memory_of_its_own(
    shared_stage: Stage,
) -> None:
    assert await carried_in_one_transaction(shared_stage, 50_000) < LIMIT_BYTES


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_transaction_of_a_million_events_needs_no_memory_of_its_own(
    stage: Stage,
) -> None:
    assert await carried_in_one_transaction(stage, 1_000_000) < LIMIT_BYTES
