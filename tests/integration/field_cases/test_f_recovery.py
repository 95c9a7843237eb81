"""Field cases F: first snapshot, resnapshot after a loss, retention, replay."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.postgres_source import connect
from tests.relay_process import RelayProcess, cdc, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cdc.local import LocalPostgres
    from tests.kafka_records import Topics
    from tests.postgres_source import Source

pytestmark = [pytest.mark.postgres]

INSERT = "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES (%s, %s, 't')"
MANY = (
    "INSERT INTO outbox (aggregatetype, aggregateid, type)"
    " SELECT %s, n::text, 't' FROM generate_series(1, %s) n"
)


class Lines:
    """The events of a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def events(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        whole = self._path.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def ids(self) -> Counter[str]:
        return Counter(event["id"] for event in self.events())

    def replayed(self) -> list[str]:
        return [
            event["id"]
            for event in self.events()
            if "cdc.replay" in dict(event["headers"])
        ]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "events")


def to_file(source: Source, tmp_path: Path, **settings: str) -> dict[str, str]:
    return environment(
        source,
        CDC_SINK="jsonl",
        CDC_JSONL__PATH=str(tmp_path / "events"),
        CDC_STATUS_INTERVAL_S="1",
        **settings,
    )


async def ids(source: Source) -> set[str]:
    rows = await source.fetch("SELECT id::text FROM outbox")
    return {str(row["id"]) for row in rows}


async def delivered_all(source: Source, lines: Lines) -> None:
    async def is_complete() -> bool:
        return await ids(source) <= set(lines.ids())

    await eventually(is_complete, 30.0, what="every row is delivered")


async def write_on(source: Source, stopping: asyncio.Event, writers: int = 6) -> None:
    """Commit transactions of up to a second, with savepoints, until told to stop."""

    async def write(number: int) -> None:
        async with await connect(source.dsn) as link:
            turn = 0
            while not stopping.is_set():
                turn += 1
                async with link.transaction():
                    await link.execute(INSERT, ("order", f"{number}-{turn}-a"))
                    async with link.transaction():
                        await link.execute(INSERT, ("order", f"{number}-{turn}-b"))
                    await link.execute("SELECT pg_sleep(%s)", (0.2 * (number % 4),))
                    await link.execute(INSERT, ("order", f"{number}-{turn}-c"))

    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(write(number))


async def test_f01_snapshot_meets_stream_without_gap_or_overlap(
    source: Source, tmp_path: Path, lines: Lines
) -> None:
    await source.create_outbox()
    await source.drop_slot()
    await source.execute(MANY, "order", 1000)
    settings = to_file(source, tmp_path, CDC_SNAPSHOT="outbox")
    code, out, _err = await cdc("init", settings=settings)
    assert code == 0, out
    assert await source.slot_row() is None, "init leaves the slot to the run"
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write_on(source, stopping))
        async with RelayProcess(settings) as relay:
            await relay.streaming()
            before = len(await ids(source))

            async def has_grown() -> bool:
                return len(await ids(source)) > before + 200

            await eventually(has_grown, 30.0)
            stopping.set()
            await writing
            await delivered_all(source, lines)
            assert await relay.stop() == 0

    assert lines.ids() == Counter(await ids(source)), "each row exactly once"
    assert len(lines.replayed()) >= 1000
    keys = [event["key"] for event in lines.events() if event["key"].isdecimal()]
    assert keys == [str(number) for number in range(1, 1001)], "in insertion order"


async def test_f01_a_slot_without_its_snapshot_is_not_taken_for_one(
    source: Source, tmp_path: Path, lines: Lines
) -> None:
    await source.create_outbox()
    await source.execute(INSERT, "order", "k")
    settings = to_file(source, tmp_path, CDC_SNAPSHOT="outbox")
    async with RelayProcess(settings, with_http=False) as relay:
        assert await relay.exited() == 3
        assert f"slots drop {source.slot}" in relay.stderr
    assert lines.events() == []


async def test_f03_resnapshot_after_slot_loss(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
    lines: Lines,
) -> None:
    server = private_postgres("15", settings={"max_slot_wal_keep_size": "1GB"})
    source = await source_of("15", "pgoutput", server=server)
    await source.create_outbox()
    settings = to_file(source, tmp_path)
    async with RelayProcess(settings, with_http=False) as relay:
        await relay.logged(event="state", state="streaming")
        await source.execute(MANY, "order", 9000)
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    row = await source.slot_row()
    assert row is not None
    await source.drop_slot()
    await source.execute(MANY, "order", 1000)

    async with RelayProcess(settings, with_http=False) as relay:
        assert await relay.exited() == 4
    assert len(lines.events()) == 9000, "nothing is published past the gap"
    code, out, err = await cdc(
        "resnapshot",
        "--yes",
        "--json",
        "--since",
        str(row["confirmed_flush_lsn"]),
        settings=settings,
    )

    assert code == 0, err
    assert json.loads(out)["published"] == 1000
    assert lines.ids() == Counter(await ids(source))
    assert len(lines.replayed()) == 1000
    async with RelayProcess(settings, with_http=False) as relay:
        await relay.logged(event="state", state="streaming")
        await source.execute(INSERT, "order", "after")
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    assert lines.ids() == Counter(await ids(source))


async def lose(source: Source) -> None:
    """Write WAL beyond the limit until the slot is lost."""

    async def is_lost() -> bool:
        await source.execute(
            "SELECT pg_logical_emit_message(false, 'junk', repeat('x', 1000000))"
            " FROM generate_series(1, 30)"
        )
        await source.execute("SELECT pg_switch_wal()")
        await source.execute("CHECKPOINT")
        row = await source.slot_row()
        return row is not None and row["wal_status"] == "lost"

    await eventually(is_lost, 60.0, what="the slot is lost")


async def test_f03_a_second_loss_of_the_same_kind_is_not_answered_by_itself(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    tmp_path: Path,
    lines: Lines,
) -> None:
    server = private_postgres(
        "18", settings={"max_slot_wal_keep_size": "48MB", "max_wal_size": "64MB"}
    )
    source = await source_of("18", "pgoutput", server=server)
    await source.create_outbox()
    settings = to_file(source, tmp_path, CDC_ON_SLOT_LOSS="resnapshot")
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await source.execute(MANY, "order", 10)
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    await lose(source)
    await source.execute(MANY, "order", 10)

    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    assert lines.ids() == Counter(await ids(source))
    await lose(source)
    await source.execute(MANY, "order", 10)

    async with RelayProcess(settings, with_http=False) as relay:
        assert await relay.exited() == 4
        assert "raise max_slot_wal_keep_size to at least" in relay.stderr
    assert len(lines.events()) == 20


async def test_a_parked_relay_streams_by_itself_after_the_resnapshot(
    source: Source, tmp_path: Path, lines: Lines
) -> None:
    await source.create_outbox()
    settings = to_file(source, tmp_path)
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await source.execute(INSERT, "order", "before")
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    await source.drop_slot()
    await source.execute(INSERT, "order", "missed")
    async with RelayProcess(settings) as relay:

        async def is_parked() -> bool:
            return (await relay.get("/readyz"))[1].startswith("slot_lost")

        await eventually(is_parked, 20.0)
        assert len(lines.events()) == 1
        code, _out, err = await cdc("resnapshot", "--yes", settings=settings)
        assert code == 0, err
        await relay.streaming()
        await source.execute(INSERT, "order", "after")
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    assert [event["key"] for event in lines.events()] == ["before", "missed", "after"]


@pytest.mark.kafka
async def test_only_what_the_topics_lack_is_published(
    source: Source, kafka: Any, topics: Topics, topic: str
) -> None:
    """Read back from the brokers: what a crash left behind the position is there."""
    await source.create_outbox()
    settings = environment(
        source,
        CDC_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        CDC_OUTBOX__TOPIC=topic,
        CDC_STATUS_INTERVAL_S="1",
    )
    await topics.create(topic, partitions=3)
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await source.execute(MANY, "order", 500)
        await topics.read(topic, 500)
        await relay.kill()
    await source.drop_slot()
    await source.execute(MANY, "late", 40)

    code, out, err = await cdc(
        "resnapshot", "--yes", "--json", settings=settings, deadline_s=60
    )

    assert code == 0, err
    assert json.loads(out)["published"] == 40
    records = await topics.read(topic, 540)
    found = Counter(dict(record.headers)["id"].decode() for record in records)
    assert found == Counter(await ids(source))
    marked = [one for one in records if "cdc.replay" in dict(one.headers)]
    assert len(marked) == 40
    assert not any("cdc.position" in dict(one.headers) for one in marked)


async def test_replay_publishes_rows_again_beside_a_running_relay(
    source: Source, tmp_path: Path, lines: Lines
) -> None:
    await source.create_outbox()
    settings = to_file(source, tmp_path)
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await source.execute(MANY, "order", 5)
        await delivered_all(source, lines)
        assert await relay.stop() == 0
    row = await source.slot_at_rest()

    code, out, err = await cdc(
        "replay", "--since", "1970-01-01", "--key", "3", settings=settings
    )

    assert code == 0, err
    assert "1 rows published" in out
    (again,) = lines.replayed()
    (event,) = [one for one in lines.events() if one["key"] == "3"][:1]
    assert again == event["id"]
    assert await source.slot_row() == row


async def test_prune_deletes_what_is_acknowledged_and_old(
    source: Source, tmp_path: Path
) -> None:
    await source.create_outbox()
    settings = to_file(source, tmp_path)
    code, _out, err = await cdc("prune", "--keep", "1h", settings=settings)
    assert code == 3, err
    async with RelayProcess(settings) as relay:
        await relay.streaming()
        await source.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, created_at)"
            " SELECT 'order', n::text, 't', now() - interval '2 hours'"
            " FROM generate_series(1, 30) n"
        )

        async def is_certain() -> bool:
            await source.execute(INSERT, "order", "young")
            _code, out, _err = await cdc(
                "prune", "--keep", "1h", "--dry-run", "--json", settings=settings
            )
            return out.startswith("[") and json.loads(out)[0]["deleted"] == 30

        await eventually(is_certain, 30.0, what="the rows are certainly acknowledged")
        code, out, err = await cdc("prune", "--keep", "1h", settings=settings)
        assert code == 0, err
        assert "30 rows deleted" in out
        assert await relay.stop() == 0
    left = await source.fetch("SELECT DISTINCT aggregateid FROM outbox")
    assert [row["aggregateid"] for row in left] == ["young"]
