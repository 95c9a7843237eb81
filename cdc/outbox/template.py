"""Templates over a row: ``orders.{tenant}``, for topics and for headers."""

from __future__ import annotations

import string
from dataclasses import dataclass

TABLE_FIELDS = frozenset({"schema", "table"})
"""Names that stand for the table itself and not for one of its columns."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with columns in it.

    Attributes:
        text: as the user wrote it.
        parts: literal text and field names in turn, as (literal, field or None).

    """

    text: str
    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read ``literal{column}``; braces that are meant are doubled.

        Raises ValueError for a brace without its partner, for ``{}`` and for anything
        beside a name inside the braces.
        """
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as exc:
            raise ValueError(f"template {text!r}: {exc}") from None
        for _, name, spec, conversion in parsed:
            if name == "" or spec or conversion:
                raise ValueError(
                    f"template {text!r}: write a column's name in braces, nothing else"
                )
        return cls(text, tuple((literal, name) for literal, name, _, _ in parsed))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs, in order, each once."""
        names = [name for _, name in self.parts if name and name not in TABLE_FIELDS]
        return tuple(dict.fromkeys(names))

    @property
    def is_constant(self) -> bool:
        """Whether it needs no row and no table."""
        return all(name is None for _, name in self.parts)

    @property
    def literals(self) -> str:
        """Its literal text alone, joined."""
        return "".join(literal for literal, _ in self.parts)
