"""Which relation of the WAL belongs to which outbox table.

pgoutput names tables by oid, and through the root of a partitioned table; wal2json
names the leaf, so that every new name is looked up once. What cannot be looked up any
more and could have been ours stops the relay: skipping it would be a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.errors import RequirementMissing
from cdc.outbox import TableName
from cdc.requirements import partition_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from cdc.outbox import Binding, Mapping
    from cdc.requirements import SourceFacts
    from cdc.wal.changes import Relation

_MAX_REMEMBERED: Final = 4096


class Routes:
    """Finds the binding of a relation, and remembers it.

    Args:
        mapping: how rows become events.
        facts: the tables' oids, as seen at the start of the session.
        connection: an ordinary one, for names that are not in the facts.
        covered: awaited before rows of a layout that pgoutput tells anew; raises when
            the publication is not as it was, for a table that was taken out of it and
            put back is told anew, and nothing else says that rows are missing.

    """

    def __init__(
        self,
        mapping: Mapping,
        facts: SourceFacts,
        connection: AsyncConnection[TupleRow],
        covered: Callable[[], Awaitable[None]],
    ) -> None:
        self._mapping = mapping
        self._tables = {oid: table for table, oid in facts.tables.items()}
        self._names = frozenset(facts.tables)
        self._connection = connection
        self._covered = covered
        self.bindings: dict[Relation, Binding | None] = {}
        """What is known already; the relay looks here before it asks."""

    async def find(self, relation: Relation) -> Binding | None:
        """Return the binding of a relation, None when it is not an outbox table.

        Raises:
            ColumnMissing: a mapped column is not in the layout.
            RequirementMissing: the relation is gone and may have been ours.
            SlotError: the catalog could not be asked.
            PositionMismatch: the publication is not as it was.

        """
        table = await self._table_of(relation)
        binding = None
        if table is not None:
            if relation.oid is not None:
                await self._covered()
            binding = self._mapping.bind(relation, table)
        if len(self.bindings) >= _MAX_REMEMBERED:
            # Ours stay, the newest at least: a dropped partition cannot be asked again.
            ours = [known for known in self.bindings.items() if known[1]]
            self.bindings = dict(ours[-_MAX_REMEMBERED // 2 :])
        self.bindings[relation] = binding
        return binding

    def is_outbox(self, relation: Relation | None) -> bool:
        """Tell whether it is an outbox table, by what is known without asking."""
        return relation is not None and (
            self._by_oid(relation) is not None or self._name(relation) in self._names
        )

    async def _table_of(self, relation: Relation) -> TableName | None:
        if relation.oid is not None:
            known = self._by_oid(relation)
            name = self._name(relation)
            return known or (name if name in self._names else None)
        name = self._name(relation)
        if name in self._names:
            return name
        root = await partition_root(self._connection, relation.schema, relation.name)
        if root is not None:
            table, oid = root
            return self._tables.get(oid) or (table if table in self._names else None)
        if self._could_be_ours(relation):
            raise RequirementMissing(
                f"rows of {name} are in the WAL, the table is gone, and it has every"
                " column of the outbox: it may have been one of its partitions",
                hint="use the pgoutput plugin with publish_via_partition_root, which"
                " names the parent; `slots copy` changes the plugin without a loss",
            )
        return None

    def _by_oid(self, relation: Relation) -> TableName | None:
        return None if relation.oid is None else self._tables.get(relation.oid)

    def _could_be_ours(self, relation: Relation) -> bool:
        columns = {column.name for column in relation.columns}
        return all(
            columns.intersection(group) for group in self._mapping.required_columns()
        )

    @staticmethod
    def _name(relation: Relation) -> TableName:
        return TableName(relation.schema, relation.name)
