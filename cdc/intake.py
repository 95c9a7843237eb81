"""Messages of the output plugin become gathered events.

Decoding, grouping and mapping in one place, with no knowledge of sinks or positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cdc.gathering import Gathering
from cdc.remarks import Remarks
from cdc.wal.changes import Begin, Commit, Insert, Relation, SkipKind, Skipped
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

    async def take(self, payload: bytes) -> TransactionEnd | None:
        """Take a message; return the end of a transaction when it is one.

        Raises:
            DecodeError: it is no message, or does not belong here.
            MappingError: its row cannot be an event.
            RequirementMissing: its relation is gone and may have been ours.
            PositionMismatch: this is not the history that the stored position is of.

        """
        change = self._decode(payload)
        match change:
            case Insert():
                await self._insert(change)
            case Begin():
                self._assembler.begin(change)
                if self._gate is not None:
                    self._gate.begin(change)
            case Commit():
                return self._commit(change)
            case Skipped():
                self._skip(change)
            case Relation():
                # Known to the decoder; what it means is asked with its first row.
                pass
        return None

    async def _insert(self, change: Insert) -> None:
        relation = change.relation
        try:
            binding = self._routes.bindings[relation]
        except KeyError:
            binding = await self._routes.find(relation)
        if binding is None:
            self._metrics.skipped.labels(kind=SkipKind.FOREIGN_INSERT.value).inc()
            return
        if self._gate is not None and self._gate.drops():
            self._metrics.skipped.labels(kind=SkipKind.REPEAT.value).inc()
            return
        row = self._assembler.insert(change)
        if row is not None:
            self._add(row)

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
