"""A lost slot under load: every committed row arrives, without a crash exactly once.

Long transactions with savepoints, some of them prepared, lie across the loss, the new
slot and its snapshot. In every second round the resnapshot is killed at some moment and
gone on with. One round of each kind in the ordinary run; ``make faults`` has twenty,
with hundreds of transactions open at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.faults.stage import Stage
from tests.relay_process import cdc, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from cdc.local import LocalPostgres
    from tests.kafka_records import Topics
    from tests.postgres_source import Source

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.kafka]

SEED = 20261201
INSERT = (
    "INSERT INTO public.outbox (aggregatetype, aggregateid, type)"
    " VALUES ('o', %s, 't') RETURNING id::text"
)

_log = logging.getLogger(__name__)


class LongTransactions:
    """Writers whose transactions last from one to three seconds, with savepoints.

    Attributes:
        committed: ids of rows whose commit was answered.

    """

    def __init__(self, dsn: str, writers: int) -> None:
        self._dsn = dsn
        self._writers = writers
        self._chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
        self._is_stopping = False
        self.committed: set[str] = set()
        self.transactions = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the block runs; every transaction is ended behind it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._writers):
                group.create_task(self._write(number))
            try:
                yield
            finally:
                self._is_stopping = True

    async def grown_by(self, count: int) -> None:
        """Wait until so many more rows are committed."""
        target = len(self.committed) + count
        await eventually(lambda: len(self.committed) >= target, 60.0)

    async def _write(self, number: int) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True
        ) as link:
            while not self._is_stopping:
                self.committed |= await self._transaction(link, str(number))
                self.transactions += 1

    async def _transaction(
        self, link: psycopg.AsyncConnection[Any], key: str
    ) -> set[str]:
        async def insert() -> str:
            cursor = await link.execute(INSERT, (key,))
            (found,) = await cursor.fetchone() or ("",)
            return str(found)

        async with link.transaction():
            written = {await insert()}
            async with link.transaction():
                written.add(await insert())
            async with link.transaction(force_rollback=True):
                await insert()
            await asyncio.sleep(self._chance.uniform(1.0, 3.0))
            async with link.transaction():
                written.add(await insert())
        return written


class Prepared:
    """A prepared transaction with a row in it, which outlives connections."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def prepare(self) -> str:
        """Prepare it; return the row's id."""
        async with await psycopg.AsyncConnection.connect(self._source.dsn) as link:
            cursor = await link.execute(INSERT, ("prepared",))
            (found,) = await cursor.fetchone() or ("",)
            await link.execute("PREPARE TRANSACTION 'across the loss'")
            await link.rollback()
        return str(found)

    async def commit(self) -> None:
        """Commit it."""
        await self._source.execute("COMMIT PREPARED 'across the loss'")


async def killed_at_some_moment(settings: dict[str, str], after_s: float) -> None:
    """Start a resnapshot and kill it, unless it is through before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cdc.cli", "resnapshot", "--yes", env=settings
    )
    try:
        async with asyncio.timeout(after_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@pytest.fixture
async def recovery(
    private_postgres: Callable[..., LocalPostgres],
    source_of: Callable[..., Awaitable[Source]],
    kafka: Any,
    topics: Topics,
    topic: str,
) -> Stage:
    server = private_postgres(
        "18",
        settings={
            "max_connections": "1200",
            "max_prepared_transactions": "10",
            "track_commit_timestamp": "on",
        },
    )
    source = await source_of("18", "pgoutput", server=server)
    stage = Stage(
        source=source, kafka=kafka.bootstrap_servers, topics=topics, topic=topic
    )
    await stage.set()
    return stage


async def lost_and_found(stage: Stage, rounds: int, writers: int) -> None:
    source = stage.source
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    load = LongTransactions(source.dsn, writers)
    settings = environment(
        source,
        CDC_KAFKA__BOOTSTRAP_SERVERS=stage.kafka,
        CDC_OUTBOX__TOPIC=stage.topic,
        CDC_STATUS_INTERVAL_S="1",
    )
    expected: set[str] = set()
    async with load.running():
        for number in range(rounds):
            async with stage.relay(CDC_STATUS_INTERVAL_S="1") as relay:
                await relay.streaming()
                await load.grown_by(writers * 4)
                assert await relay.stop() == 0
            prepared = Prepared(source) if number % 3 == 1 else None
            if prepared is not None:
                expected.add(await prepared.prepare())
            await source.drop_slot()
            await load.grown_by(writers * 2)
            if number % 2:
                await killed_at_some_moment(settings, chance.uniform(0.3, 6.0))
            again = asyncio.create_task(
                cdc("resnapshot", "--yes", "--json", settings=settings, deadline_s=120)
            )
            if prepared is not None:
                await load.grown_by(writers)
                await prepared.commit()
            code, out, err = await again
            assert code == 0, err
            _log.info("round %d: %s", number, " ".join(out.split()))
        async with stage.relay() as relay:
            await relay.streaming()
            await load.grown_by(writers)
            assert await relay.stop() == 0
    async with stage.relay() as relay:
        await relay.streaming()
        found = await everything(stage, load.committed | expected)
        assert await relay.stop() == 0
    _log.info(
        "%d transactions, %d rows, %d repeated",
        load.transactions,
        len(load.committed),
        sum(found.values()) - len(found),
    )
    if rounds == 1:  # no crash
        assert set(found.values()) == {1}, "each exactly once"


async def everything(stage: Stage, wanted: set[str]) -> Counter[str]:
    """Read the topic until every wanted id is there; return how often each is."""

    async def read() -> Counter[str]:
        records = await stage.topics.read_to_end(stage.topic, 60.0)
        found = Counter(dict(record.headers)["id"].decode() for record in records)
        missing = wanted - found.keys()
        assert not missing, f"{len(missing)} of {len(wanted)} missing"
        return found

    found: Counter[str] = await eventually(read, 60.0, what="every committed row")
    rows = await stage.source.fetch("SELECT id::text FROM outbox")
    assert set(found) == {row["id"] for row in rows}, (
        "and nothing that is not committed"
    )
    return found


async def test_every_row_arrives_once_through_a_lost_slot(recovery: Stage) -> None:
    await lost_and_found(recovery, 1, 40)


async def test_every_row_arrives_through_a_crash_and_a_prepared_transaction(
    recovery: Stage,
) -> None:
    await lost_and_found(recovery, 2, 40)


@pytest.mark.slow
@pytest.mark.timeout(2400)
async def test_every_row_arrives_through_twenty_lost_slots(recovery: Stage) -> None:
    await lost_and_found(recovery, 20, 600)
