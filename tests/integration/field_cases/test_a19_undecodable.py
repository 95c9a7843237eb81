"""Field case A19: one transaction that the server cannot decode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slots.lsn import Lsn
from tests.relay_process import RelayProcess, cdc, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.postgres_source import Source

# Each control character is six in wal2json's text, and a text ends at a gigabyte.
TOO_LARGE = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type, note)"
    " VALUES ('o', 'large', 't', repeat(E'\\x01', 200000000))"
)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a19_a_row_beyond_the_servers_limit_is_named_and_can_be_passed(
    source_of: Callable[..., Awaitable[Source]], tmp_path: Path
) -> None:
    """What came before it is delivered once; what comes behind flows afterwards."""
    source = await source_of("15", "wal2json")
    await source.create_outbox()
    await source.execute("ALTER TABLE outbox ADD note text")
    await source.insert_event("order", "before")
    await source.execute(TOO_LARGE)
    await source.insert_event("order", "behind")
    path = tmp_path / "events"

    def keys() -> list[str]:
        if not path.exists():
            return []
        return [json.loads(line)["key"] for line in path.read_bytes().splitlines()]

    settings = environment(
        source, CDC_SINK="jsonl", CDC_JSONL__PATH=str(path), CDC_BACKOFF__MAX_S="1"
    )
    async with RelayProcess(settings) as relay:

        async def is_stuck() -> bool:
            return (await relay.metric("walferry_state", state="stuck")) == 1.0

        await eventually(is_stuck, 800.0, what="it is called stuck")
        reason = (await relay.status())["reason"]
        assert "SQLSTATE" in reason
        line = await relay.logged(event="stuck")
        place = Lsn.parse(line["commit_lsn"])
        _, named, gap = line["remedy"].rpartition("cdc adopt --accept-gap ")
        assert named, line["remedy"]
        assert Lsn.parse(gap) > place
        row = await source.slot_row()
        assert row is not None
        assert Lsn.parse(row["confirmed_flush_lsn"]) < place
        assert keys() == ["before"]
        assert await relay.stop() == 0

    # A walsender in the middle of such a row hears of nothing until it has failed.
    await source.slot_at_rest(120.0)
    code, _out, err = await cdc("adopt", "--accept-gap", gap, settings=settings)
    assert code == 0, err
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await eventually(lambda: keys() == ["before", "behind"], 30.0)
        assert await relay.stop() == 0
