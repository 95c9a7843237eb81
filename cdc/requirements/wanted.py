"""What a run asks of Postgres, and what it learns there at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.outbox import TableName
    from slots.state import Slot

PGOUTPUT: Final = "pgoutput"
WAL2JSON: Final = "wal2json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run asks of Postgres.

    Attributes:
        slot: name of the replication slot.
        plugin: ``pgoutput`` or ``wal2json``; the latter needs no publication.
        publication: name of the publication.
        tables: the outbox tables, at least one.
        required_columns: groups of names; of each group every table must deliver at
            least one. A group has several while a renamed column's old name is still
            in the WAL.

    """

    slot: str
    plugin: str
    publication: str
    tables: tuple[TableName, ...]
    required_columns: tuple[tuple[str, ...], ...]

    @property
    def uses_publication(self) -> bool:
        """Whether the plugin reads the publication at all."""
        return self.plugin == PGOUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What the source looked like when a session started.

    Attributes:
        server_version: as ``server_version_num`` has it, 150020 for 15.20.
        system_id: the cluster's identity, decimal as Postgres prints it.
        timeline: the timeline the server writes on.
        database: the database's name.
        server_encoding: the database's encoding.
        slot: the slot's row.
        tables: the oid of each outbox table; of the root where it is partitioned.
        partitioned: the tables whose rows live in partitions.
        bytea_types: oids of bytea and of every domain over it.
        wal_sender_timeout_s: after that long without a status the server hangs up; 0
            for never.

    """

    server_version: int
    system_id: str
    timeline: int
    database: str
    server_encoding: str
    slot: Slot
    tables: Mapping[TableName, int]
    partitioned: frozenset[TableName]
    bytea_types: frozenset[int]
    wal_sender_timeout_s: float
