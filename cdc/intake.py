"""Messages of the output plugin become gathered events.

Decoding, grouping and mapping in one place, with no knowledge of sinks or positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cdc.gathering import Gathering
from cdc.remarks import Remarks
from cdc.wal.changes import Begin, Commit, Insert, SkipKind, Skipped
from cdc.wal.transaction import TransactionAssembler

if TYPE_CHECKING:
    from cdc.metrics import RelayMetrics
    from cdc.position import Gate
    from cdc.routes import Routes
    from cdc.wal.changes import Change
    from cdc.wal.transaction import Row, TransactionEnd
    from slots.lsn import Lsn


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

    """

    def __init__(
        self,
        decoder: Decoder,
        routes: Routes,
        metrics: RelayMetrics,
        gate: Gate | None,
    ) -> None:
        self._gate = gate
        self._decode = decoder.decode
        self._routes = routes
        self._metrics = metrics
        self._assembler = TransactionAssembler()
        self._remarks = Remarks()
        self.gathering = Gathering()

    @property
    def open_transaction(self) -> Begin | None:
        """The transaction whose commit has not been read yet."""
        return self._assembler.open_transaction

    @property
    def is_open(self) -> bool:
        """Whether the stream has proven to be on the history that is stored."""
        return self._gate is None

    def hand_over(self) -> Gathering:
        """Give what is gathered, and begin anew."""
        gathered, self.gathering = self.gathering, Gathering()
        return gathered

    def take(self, payload: bytes) -> TransactionEnd | Insert | None:
        """Take a message; return the end of a transaction when it is one.

        An insert that is returned is of a relation that is not known yet, and has not
        been taken: :meth:`meet` has to be awaited with it before the next message.

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

    async def meet(self, change: Insert) -> None:
        """Learn what relation a row is of, and take it.

        Raises:
            RequirementMissing: its relation is gone and may have been ours.
            Others: see :meth:`take`, and :meth:`cdc.routes.Routes.find`.

        """
        await self._routes.find(change.relation)
        self._insert(change)

    def _begin(self, change: Begin) -> None:
        self._assembler.begin(change)
        if self._gate is not None:
            self._gate.begin(change)

    def _insert(self, change: Insert) -> Insert | None:
        try:
            binding = self._routes.bindings[change.relation]
        except KeyError:
            return change
        if binding is None:
            self._metrics.skipped.labels(kind=SkipKind.FOREIGN_INSERT.value).inc()
        elif self._gate is not None and self._gate.drops():
            self._metrics.skipped.labels(kind=SkipKind.REPEAT.value).inc()
        else:
            row = self._assembler.insert(change)
            if row is not None:
                self._add(row)
        return None

    def _commit(self, change: Commit) -> TransactionEnd:
        if self._gate is not None:
            self._gate.commit(change)
            self._open_gate()
        transaction = self._assembler.open_transaction
        end = self._assembler.commit(change)
        if end.last_row is not None and transaction is not None:
            self._add(end.last_row)
            self.gathering.end_transaction(transaction, end.end_lsn)
        return end

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

    def _add(self, row: Row) -> None:
        """Make the row's event and gather it."""
        binding = self._routes.bindings[row.relation]
        assert binding is not None  # noqa: S101 - only outbox rows are assembled
        self.gathering.add(binding.event(row), row.transaction)
        if binding.forged_headers or binding.keyless:
            self._remarks.on_rows(binding)

    def _skip(self, change: Skipped) -> None:
        self._metrics.skipped.labels(kind=change.kind.value).inc()
        is_ours = change.kind is SkipKind.TRUNCATE or (
            change.kind in (SkipKind.UPDATE, SkipKind.DELETE)
            and self._routes.is_outbox(change.relation)
        )
        if is_ours:
            self._remarks.on_change(change.kind.value)
