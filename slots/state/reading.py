"""One look at a server: its slots, its settings, and who holds transactions open.

Distances are never negative: a slot can be ahead of the WAL (a standby that replays, a
promoted one that lacks the end of the old primary's), and then nothing is retained for
it. None means unknown, never nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from slots.lsn import Lsn
    from slots.state.slot import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server at one moment; None where it has no such setting.

    Attributes:
        version: as ``server_version_num`` has it, 150020 for 15.20.
        wal_position: the end of the WAL written, on a standby of the WAL replayed.
        slot_wal_limit_bytes: max_slot_wal_keep_size, None for no limit.
        idle_slot_timeout_s: idle_replication_slot_timeout (18 and later), 0 for never.
        synchronized_standby_slots: what failover slots wait for (17 and later).
        sees_sessions: whether we may see other roles' sessions (pg_monitor).

    """

    at: datetime
    started_at: datetime
    version: int
    database: str
    role: str
    is_in_recovery: bool
    wal_position: Lsn | None
    wal_level: str
    max_slots: int
    slot_wal_limit_bytes: int | None
    max_wal_bytes: int
    checkpoint_timeout_s: int
    idle_slot_timeout_s: int | None
    synchronized_standby_slots: tuple[str, ...] | None
    sees_sessions: bool

    @property
    def major(self) -> int:
        """The major version, 15."""
        return self.version // 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """An open write transaction: no slot's restart_lsn can pass its beginning.

    Attributes:
        xid: its transaction id.
        age: in transactions; the oldest blocks first.
        pid: of its session; None for a prepared transaction, and for one whose
            session is not to be seen.
        gid: the name of a prepared transaction.
        state: what the session does; None without pg_monitor.
        open_s: since its beginning, or its PREPARE; None without pg_monitor.
        query_s: since the latest query began, likewise.

    """

    xid: int
    age: int
    pid: int | None = None
    gid: str | None = None
    database: str | None = None
    user: str | None = None
    application: str | None = None
    address: str | None = None
    state: str | None = None
    open_s: float | None = None
    query_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All slots of a cluster, and what judging them takes, from one round trip.

    Attributes:
        blockers: the oldest open write transactions of the whole cluster.
        blocker_count: how many there are.

    """

    server: Server
    slots: tuple[Slot, ...]
    blockers: tuple[Blocker, ...]
    blocker_count: int

    def slot(self, name: str) -> Slot | None:
        """Return a slot by name."""
        return next((slot for slot in self.slots if slot.name == name), None)

    def retained_bytes(self, slot: Slot) -> int | None:
        """Return how much WAL the server keeps for it: lag and transaction gap."""
        if slot.is_lost:  # after idle_timeout it still shows a restart_lsn
            return None
        return _distance(self.server.wal_position, slot.restart_lsn)

    def lag_bytes(self, slot: Slot) -> int | None:
        """Return what its consumer has not confirmed; for a physical slot, retained."""
        if slot.is_lost:
            return None
        return _distance(self.server.wal_position, slot.position)

    def gap_bytes(self, slot: Slot) -> int | None:
        """Return what is kept although confirmed: for open write transactions."""
        if slot.is_lost or not slot.is_logical:
            return None
        return _distance(slot.confirmed_flush_lsn, slot.restart_lsn)

    def ahead_bytes(self, slot: Slot) -> int:
        """Return by how much a primary's slot is beyond the end of its WAL.

        Commits up to there would be skipped without a word. Standbys are let off: a
        slot copied from the primary may be ahead of what has been replayed.
        """
        position, end = slot.position, self.server.wal_position
        if slot.is_lost or self.server.is_in_recovery or not position or end is None:
            return 0
        return max(0, position - end)


def _distance(upper: Lsn | None, lower: Lsn | None) -> int | None:
    if upper is None or lower is None:
        return None
    return max(0, upper - lower)
