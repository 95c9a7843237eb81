"""Positions beside the events in Kafka, as `cdc run`, `init` and `check` treat them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cdc.position import Position, parse
from cdc.sinks import Kept
from cdc.sinks.kafka_positions import KafkaPositions
from slots.lsn import Lsn
from tests.kafka_events import options
from tests.relay_process import RelayProcess, cdc, environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kafka_records import Topics
    from tests.postgres_source import Source

pytestmark = pytest.mark.kafka
NAME = "shop"


@pytest.fixture
async def outbox(source_of: Callable[..., Awaitable[Source]]) -> Source:
    source = await source_of()
    await source.create_outbox()
    return source


@pytest.fixture
def state_topic(topic: str) -> str:
    return f"{topic}.positions"


@pytest.fixture
def settings(
    outbox: Source, kafka: Any, topic: str, state_topic: str
) -> dict[str, str]:
    return environment(
        outbox,
        CDC_NAME=NAME,
        CDC_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        CDC_KAFKA__STATE_TOPIC=state_topic,
        CDC_OUTBOX__TOPIC=topic,
        CDC_BACKOFF__MAX_S="1",
    )


@pytest.fixture
def positions(kafka: Any, state_topic: str) -> KafkaPositions:
    return KafkaPositions(options(kafka.bootstrap_servers), state_topic)


async def stored(positions: KafkaPositions) -> Position:
    async with positions:
        kept = await positions.read(NAME)
    assert kept is not None
    return parse(kept.document)


async def carried(settings: dict[str, str], outbox: Source, topics: Topics) -> None:
    """Carry one event with a relay that is stopped in order."""
    topic = settings["CDC_OUTBOX__TOPIC"]
    already = len(await topics.read_to_end(topic))
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await outbox.insert_event()
        await topics.read(topic, already + 1)
        assert await relay.stop() == 0


async def check(settings: dict[str, str]) -> tuple[int, str]:
    """Run `cdc check`; return its exit code and its line about the positions."""
    code, out, _err = await cdc("check", settings=settings)
    (line,) = [one for one in out.splitlines() if " kafka.state_topic " in one]
    return code, line


async def test_a_missing_topic_is_made_by_the_first_run_with_a_warning(
    settings: dict[str, str],
    topics: Topics,
    topic: str,
    state_topic: str,
    positions: KafkaPositions,
) -> None:
    """`cdc check` asks for it before, and finds it compacted afterwards."""
    await topics.create(topic)
    code, line = await check(settings)
    assert code == 3
    assert line.startswith("failure")
    assert f"topic {state_topic}, which keeps the positions, does not exist" in line
    assert line.endswith("-> cdc init")

    async with RelayProcess(settings) as relay:
        made = await relay.logged(event="position_store_made")
        assert made["level"] == "warning"
        assert state_topic in made["what"]
        await relay.streaming()
        assert await relay.stop() == 0

    assert (await stored(positions)).system_id
    assert (await check(settings))[1].startswith("ok")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        assert await relay.stop() == 0
    assert [one for one in relay.log if one["event"] == "position_store_made"] == []


async def test_a_topic_that_would_delete_positions_fails_the_check(
    settings: dict[str, str], topics: Topics, topic: str, state_topic: str
) -> None:
    await topics.create(topic)
    await topics.create(state_topic, configs={"cleanup.policy": "delete"})

    code, line = await check(settings)

    assert code == 3
    assert line.startswith("failure")
    assert "cleanup.policy=delete: positions would be deleted" in line
    assert "--add-config cleanup.policy=compact" in line


async def test_a_dropped_slot_is_no_first_start(
    settings: dict[str, str],
    outbox: Source,
    topics: Topics,
    topic: str,
    positions: KafkaPositions,
) -> None:
    """Neither a run nor `cdc init` makes one, and no event is sent."""
    await topics.create(topic)
    await carried(settings, outbox, topics)
    known = await stored(positions)
    await outbox.drop_slot()
    await outbox.insert_event(key="missed")

    async with RelayProcess(settings, with_http=False) as relay:
        assert await relay.exited() == 4
    code, _out, err = await cdc("init", "--yes", settings=settings)

    assert f"last position   {known.end_lsn}, stored" in relay.stderr
    assert (code, str(known.end_lsn) in err) == (4, True)
    assert await outbox.slot_row() is None
    assert len(await topics.read_to_end(topic)) == 1
    assert await stored(positions) == known


async def test_what_a_replaced_relay_writes_late_raises_no_alarm(
    settings: dict[str, str],
    outbox: Source,
    topics: Topics,
    topic: str,
    positions: KafkaPositions,
) -> None:
    """It is under an older term: believed, it would make a moved slot of ours."""
    await topics.create(topic)
    await carried(settings, outbox, topics)
    await carried(settings, outbox, topics)
    known = await stored(positions)
    late = replace(known, term=known.term - 1, end_lsn=Lsn(8), anchor=None)
    async with positions:
        await positions.write(Kept(NAME, late.term, late.document()))

    assert await stored(positions) == known
    await carried(settings, outbox, topics)
    assert len(await topics.read_to_end(topic)) == 3
