"""One relation's columns, looked up once, and templates bound to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.errors import ColumnMissing, MappingError
from cdc.outbox.template import TABLE_FIELDS
from cdc.wal.changes import UNCHANGED, ColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.outbox.table_name import TableName
    from cdc.outbox.template import Template
    from cdc.wal.changes import Relation, Value

UNSENT: Final = "an inserted row came without one of its values"


class Layout:
    """Looks columns up in one relation."""

    def __init__(self, relation: Relation, table: TableName) -> None:
        self._relation = relation
        self.table = table
        self._index = {column.name: i for i, column in enumerate(relation.columns)}

    def find(self, names: tuple[str, ...]) -> int | None:
        """Return where the first of these is; raise ColumnMissing for none of them."""
        if not names:
            return None
        for name in names:
            if name in self._index:
                return self._index[name]
        raise ColumnMissing(
            f"table {self.table} has no column {' or '.join(map(repr, names))}"
            f" in the WAL (it has {', '.join(self._index)})",
        )

    def is_bytea(self, index: int) -> bool:
        """Tell whether a column comes in hex."""
        return self._relation.columns[index].type is ColumnType.BYTEA

    def resolve(
        self, template: Template, default: tuple[str, ...] | None = None
    ) -> BoundTemplate:
        """Find a template's columns; ``default`` are the names of each of them."""
        parts: list[tuple[str, int | None]] = []
        for literal, name in template.parts:
            if name in TABLE_FIELDS:
                own = self.table.schema if name == "schema" else self.table.name
                parts.append((literal + own, None))
            elif name is None:
                parts.append((literal, None))
            else:
                parts.append((literal, self.find(default or (name,))))
        return BoundTemplate(tuple(parts))


class BoundTemplate:
    """A template whose columns are positions in the row."""

    __slots__ = ("constant", "indexes", "parts", "single")

    def __init__(self, parts: tuple[tuple[str, int | None], ...]) -> None:
        self.parts = parts
        self.indexes = tuple(index for _, index in parts if index is not None)
        self.constant = (
            None if self.indexes else "".join(literal for literal, _ in parts)
        )
        self.single = (
            self.indexes[0]
            if len(parts) == 1 and not parts[0][0] and self.indexes
            else None
        )

    def render(self, values: Sequence[Value]) -> bytes | None:
        """Fill in a row: one bare column passes NULL on, else NULL is empty text."""
        if self.single is not None:
            return given(values[self.single])
        return b"".join(
            literal.encode() + (b"" if index is None else given(values[index]) or b"")
            for literal, index in self.parts
        )


def given(value: Value) -> bytes | None:
    """Return a value; raise MappingError when an insert came without it."""
    if value is UNCHANGED:
        raise MappingError(UNSENT)
    return value
