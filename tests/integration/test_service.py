"""``cdc run`` as a service: early signals, a sink of one's own, the slot watch."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.relay_process import RelayProcess, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.postgres_source import Source

OWN_SINK = """
import sys


class Sink:
    troubles = ()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    async def publish(self, batch):
        return self._written(batch)

    async def _written(self, batch):
        for event in batch.events:
            sys.stdout.write(f"{event.topic} {event.key.decode()}\\n")
        sys.stdout.flush()

    async def check(self, topics):
        return []
"""


@pytest.fixture
async def outbox(source_of: Callable[..., Awaitable[Source]]) -> Source:
    source = await source_of("18", "pgoutput")
    await source.create_outbox()
    return source


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_servers_are_away_ends_it_cleanly(
    outbox: Source, number: signal.Signals
) -> None:
    settings = environment(
        outbox,
        CDC_POSTGRES__DSN="postgresql://app@127.0.0.1:1/shop",
        CDC_SINK="jsonl",
        CDC_BACKOFF__INITIAL_S="60",
        CDC_BACKOFF__MAX_S="60",
        CDC_STARTUP_TIMEOUT_S="600",
    )
    async with RelayProcess(settings) as relay:
        await relay.logged(event="retrying")
        assert (await relay.get("/livez"))[0] == 200

        relay.signal(number)

        assert await relay.exited(10.0) == 0
    assert "Traceback" not in relay.stderr


async def test_a_start_says_which_version_carries_what(outbox: Source) -> None:
    async with RelayProcess(environment(outbox, CDC_SINK="jsonl")) as relay:
        line = await relay.logged(event="starting")
        await relay.streaming()
        assert await relay.stop() == 0

    assert line["tables"] == "public.outbox"
    assert line["plugin"] == "pgoutput"
    assert line["sink"] == "jsonl"
    assert f"/{outbox.database} as " in line["source"]
    assert line["relay"] == f"{outbox.database}.{outbox.slot}"
    assert line["version"]


async def test_a_sink_of_the_users_own_gets_the_events(
    outbox: Source, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN_SINK)
    settings = environment(outbox, CDC_SINK="own:Sink", PYTHONPATH=str(tmp_path))
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await outbox.execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
            " VALUES (gen_random_uuid(), 'order', 'k1', 't', '{}')"
        )
        await eventually(
            lambda: relay.stdout == b"outbox.event.order k1\n", 10.0, what="the event"
        )
        assert await relay.stop() == 0


async def test_the_relay_watches_its_own_slot(outbox: Source) -> None:
    """The limits are the user's: one byte behind is an alarm here."""
    settings = environment(
        outbox,
        CDC_SINK="jsonl",
        CDC_ALARMS__RETAINED="0B:1B",
        CDC_ALARMS__INTERVAL_S="0.2",
    )
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        raised = await relay.logged(event="alarm_raised", alarm="retained")
        assert raised["alarm_level"] == "critical"

        _status, page = await relay.get("/metrics")
        assert await relay.stop() == 0

    (sample,) = [
        line
        for line in page.splitlines()
        if line.startswith("walferry_slot_retained_bytes{")
    ]
    assert f'slot_name="{outbox.slot}"' in sample
