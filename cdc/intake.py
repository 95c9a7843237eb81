"""Messages of the output plugin become gathered events.

Decoding, grouping and mapping in one place, with no knowledge of sinks or positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from cdc.gathering import Gathering
from cdc.remarks import Remarks
from cdc.wal.changes import Begin, Commit, Insert, SkipKind, Skipped
from cdc.wal.transaction import Transactions
from slots.lsn import Lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.metrics import RelayMetrics
    from cdc.outbox import Binding, Stamp
    from cdc.position import Gate
    from cdc.routes import Routes
    from cdc.wal.changes import Change, Value

BATCH_BYTES: Final = 512 << 10
"""A batch is what has arrived, cut here so that the window can be kept."""

Taken: TypeAlias = Insert | Gathering | Lsn | None
"""What is to be done about a message.

An insert is of a relation that is not known yet, and has not been taken:
:meth:`Intake.meet` has to be awaited with it before the next message. The gathering is
full. An LSN is the end of a transaction of which there is nothing to deliver.
"""


class Decoder(Protocol):
    """Turns a message of an output plugin into a change."""

    def decode(self, payload: bytes) -> Change:
        """Decode one message; raise DecodeError for bytes that are not one."""
        ...


class Intake:
    """Takes messages in order.

    Args:
        decoder: of the slot's output plugin.
        routes: which relation is an outbox table.
        metrics: counts what is skipped.
        gate: holds back what was delivered in an earlier session; None for nothing.
        batch_bytes: a gathering of this size is full.

    Attributes:
        gathering: events that are not handed over yet.

    """

    def __init__(
        self,
        decoder: Decoder,
        routes: Routes,
        metrics: RelayMetrics,
        gate: Gate | None,
        *,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._gate = gate
        self._decode = decoder.decode
        self._routes = routes
        self._metrics = metrics
        self._batch_bytes = batch_bytes
        self._transactions = Transactions()
        self._stamp: Stamp | None = None
        self._remarks = Remarks()
        self.gathering = Gathering()

    @property
    def open_transaction(self) -> Begin | None:
        """The transaction whose commit has not been read yet."""
        return self._transactions.current

    @property
    def is_open(self) -> bool:
        """Whether the stream has proven to be on the history that is stored."""
        return self._gate is None

    def hand_over(self) -> Gathering:
        """Give what is gathered and may be sent, and go on with the rest."""
        gathered = self.gathering
        self.gathering = gathered.split()
        return gathered

    def take(self, payload: bytes) -> Taken:
        """Take a message; return what is to be done about it, as a rule nothing.

        Raises:
            DecodeError: it is no message, or does not belong here.
            MappingError: its row cannot be an event.
            PositionMismatch: this is not the history that the stored position is of.

        """
        change = self._decode(payload)
        kind = type(change)
        if kind is Insert:
            return self._insert(change)  # type: ignore[arg-type] # by its type
        if kind is Commit:
            return self._commit(change)  # type: ignore[arg-type]
        if kind is Begin:
            self._begin(change)  # type: ignore[arg-type]
        elif kind is Skipped:
            self._skip(change)  # type: ignore[arg-type]
        # A Relation is known to the decoder; what it means is asked with its first row.
        return None

    async def meet(self, change: Insert) -> Gathering | None:
        """Learn what relation a row is of, and take it; return the gathering if full.

        Raises:
            RequirementMissing: its relation is gone and may have been ours.
            Others: see :meth:`take`, and :meth:`cdc.routes.Routes.find`.

        """
        await self._routes.find(change.relation)
        taken = self._insert(change)
        assert not isinstance(taken, Insert)  # noqa: S101 - it is known now
        return taken

    def _begin(self, change: Begin) -> None:
        self._transactions.begin(change)
        if self._gate is not None:
            self._gate.begin(change)

    def _insert(self, change: Insert) -> Insert | Gathering | None:
        relation, values = change
        try:
            binding = self._routes.bindings[relation]
        except KeyError:
            return change
        if binding is None:
            self._metrics.skipped.labels(kind=SkipKind.FOREIGN_INSERT.value).inc()
            return None
        if self._gate is not None and self._gate.drops():
            self._metrics.skipped.labels(kind=SkipKind.REPEAT.value).inc()
            return None
        ordinal = self._transactions.row(relation)
        gathering = self.gathering
        if ordinal:
            assert self._stamp is not None  # noqa: S101 - made with the first row
            gathering.add(binding.event(values, self._stamp, ordinal))
        else:
            self._first(binding, values)
        if binding.keyless or binding.forged_headers:
            self._remarks.on_rows(binding)
        return gathering if gathering.size_bytes >= self._batch_bytes else None

    def _first(self, binding: Binding, values: Sequence[Value]) -> None:
        """Take the first outbox row of a transaction."""
        transaction = self._transactions.current
        assert transaction is not None  # noqa: S101 - or its row had been refused
        self._stamp = stamp = binding.stamp(transaction)
        self.gathering.begin(transaction, binding.event(values, stamp, 0))

    def _commit(self, change: Commit) -> Lsn | None:
        if self._gate is not None:
            self._gate.commit(change)
            self._open_gate()
        if self._transactions.commit(change):
            self.gathering.end(change.end_lsn)
            return None
        return change.end_lsn

    def passed(self, position: Lsn) -> None:
        """Take note that everything that commits below a position has been taken.

        Raises PositionMismatch when something known should have been among it.
        """
        if self._gate is not None:
            self._gate.passed(position)
            self._open_gate()

    def _open_gate(self) -> None:
        if self._gate is not None and self._gate.is_open:
            self._gate = None

    def _skip(self, change: Skipped) -> None:
        self._metrics.skipped.labels(kind=change.kind.value).inc()
        is_ours = change.kind is SkipKind.TRUNCATE or (
            change.kind in (SkipKind.UPDATE, SkipKind.DELETE)
            and self._routes.is_outbox(change.relation)
        )
        if is_ours:
            self._remarks.on_change(change.kind.value)
