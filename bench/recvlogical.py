"""pg_recvlogical into a file: Postgres' own reader, with the relay's plugin options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.process import Command
from cdc.wal import pgoutput, wal2json

if TYPE_CHECKING:
    from bench.race import Lane

PUBLICATION: Final = "walferry"


class RecvLogical:
    """Reads a lane's slot up to its end and exits."""

    name = "pg_recvlogical"
    writes_to_kafka = False

    def command(self, lane: Lane) -> Command:
        """Return the run that writes this lane's WAL to its file."""
        start = reading(lane.recvlogical, lane.dsn, lane.slot, lane.plugin)
        to = ["--endpos", lane.end_lsn, "-f", str(lane.output)]
        return Command(argv=[*start, *to])


def reading(program: str, dsn: str, slot: str, plugin: str) -> list[str]:
    """Return the command line that starts reading a slot, lacking where to."""
    chosen = (
        pgoutput.options(PUBLICATION)
        if plugin == "pgoutput"
        else wal2json.options([("public", "outbox")])
    )
    options = [part for item in chosen.items() for part in ("-o", "=".join(item))]
    return [program, "-d", dsn, "--slot", slot, "--start", "--no-loop", *options]
