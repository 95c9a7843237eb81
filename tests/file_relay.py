"""A relay that writes to a file, for what happens to its slot between two runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from cdc.position import parse
from slots.lsn import Lsn
from tests.postgres_source import Source
from tests.relay_process import RelayProcess, cdc, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local import LocalPostgres
    from cdc.position import Position

OPERATOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRelay:
    """A relay between a test's database and a file.

    Attributes:
        source: with an outbox.
        path: of the events; the position stands beside it.
        name: of the relay, the same on every server.

    """

    source: Source
    path: Path
    name: str = "shop"

    def settings(self, **changes: str) -> dict[str, str]:
        """Return the environment of its commands."""
        own = {
            "CDC_NAME": self.name,
            "CDC_SINK": "jsonl",
            "CDC_JSONL__PATH": str(self.path),
            "CDC_STATUS_INTERVAL_S": "1",
            "CDC_BACKOFF__MAX_S": "1",
        }
        return environment(self.source, **(own | changes))

    def process(self, *, with_http: bool = True, **changes: str) -> RelayProcess:
        """Return ``cdc run``, yet to be started."""
        return RelayProcess(self.settings(**changes), with_http=with_http)

    async def cdc(self, *arguments: str, **changes: str) -> tuple[int, str, str]:
        """Run another command; return exit code, stdout and stderr."""
        return await cdc(*arguments, settings=self.settings(**changes))

    def on(self, server: LocalPostgres) -> FileRelay:
        """Return the same relay, database and slot on another server."""
        there = Source(server, self.source.version, self.source.plugin)
        there.database, there.slot = self.source.database, self.source.slot
        there.dsn = server.dsn(there.database)
        return replace(self, source=there)

    def events(self) -> list[dict[str, Any]]:
        """Return what is in the file, its last line only when it is whole."""
        if not self.path.exists():
            return []
        whole, _, _torn = self.path.read_text("utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def ids(self) -> list[str]:
        """Return the ids of the events in the file, in order."""
        return [event["id"] for event in self.events()]

    async def has(self, *ids: str, deadline_s: float = 20.0) -> None:
        """Wait until these events are in the file."""

        def arrived() -> bool:
            return set(ids) <= set(self.ids())

        await eventually(arrived, deadline_s, what=f"{len(ids)} events in the file")

    @property
    def sidecar(self) -> Path:
        """The file with the position."""
        return self.path.with_name(self.path.name + ".position")

    def position(self) -> Position:
        """Return what is stored."""
        entry = json.loads(self.sidecar.read_text("utf-8"))[self.name]
        return parse(json.dumps(entry["position"]).encode())

    async def slot_at(self) -> Lsn:
        """Return the slot's confirmed position."""
        row = await self.source.slot_row()
        assert row is not None
        return Lsn.parse(row["confirmed_flush_lsn"])

    async def run_once(self, count: int = 3, **changes: str) -> list[str]:
        """Carry so many new events with a relay that is stopped in order afterwards."""
        async with RelayProcess(self.settings(**changes)) as relay:
            await relay.streaming()
            ids = [await self.source.insert_event() for _ in range(count)]
            await self.has(*ids)
            assert await relay.stop() == 0
        return ids

    async def refuses(self, state: str = "position_mismatch", **changes: str) -> str:
        """Start it: it has to stop for an operator, having touched nothing.

        Returns what it wrote to stderr.
        """
        events, position = self.events(), self.position()
        slot = await self.source.slot_at_rest()
        async with self.process(with_http=False, **changes) as relay:
            code = await relay.exited(30.0)
        assert code == OPERATOR, relay.stderr
        (line,) = [one for one in relay.log if one.get("event") == "giving_up"]
        assert line["kind"] == state, line["reason"]
        assert line["exit_code"] == OPERATOR
        assert line["stored_lsn"] == str(position.end_lsn)
        assert [one for one in relay.log if one.get("event") == "retrying"] == []
        assert "Traceback" not in relay.stderr
        assert f"walferry stopped: {line['reason']}" in relay.stderr
        assert self.events() == events
        assert self.position() == position
        assert await self.source.slot_row() == slot
        return relay.stderr


def accepted_gap(stderr: str) -> str:
    """Return the position that a stopped relay offers to go on at."""
    _, found, rest = stderr.rpartition("cdc adopt --accept-gap ")
    if not found:
        pytest.fail(f"no gap is offered:\n{stderr}")
    return rest.split()[0]
