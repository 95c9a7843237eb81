"""The name that was probably meant, when the one that was written does not exist."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cdc.outbox import TableName

_CLOSE: Final = 0.75


def near_match(wanted: str, existing: Iterable[str]) -> str | None:
    """Return the existing name most like the wanted one, or None.

    Differences in case count least, then those in signs that are no letters or digits;
    spelling mistakes are forgiven.
    """
    names = sorted(existing)
    for name in names:
        if name.casefold() == wanted.casefold():
            return name
    by_letters: dict[str, str] = {}
    for name in names:
        by_letters.setdefault(_letters(name), name)
    close = get_close_matches(_letters(wanted), by_letters, n=1, cutoff=_CLOSE)
    return by_letters[close[0]] if close else None


def near_table(wanted: TableName, existing: Collection[TableName]) -> TableName | None:
    """Return the table most like the wanted one, or None.

    That is one whose schema and name differ in case at most, or one of the same name
    in another schema, or one of a similar name in the same schema.
    """
    for is_near in (is_twin, _is_namesake):
        for table in sorted(existing):
            if is_near(wanted, table):
                return table
    siblings = {
        table.name: table for table in existing if table.schema == wanted.schema
    }
    near = near_match(wanted.name, siblings)
    return None if near is None else siblings[near]


def is_twin(wanted: TableName, table: TableName) -> bool:
    """Tell whether two names differ in nothing but case."""
    return (wanted.schema.casefold(), wanted.name.casefold()) == (
        table.schema.casefold(),
        table.name.casefold(),
    )


def _is_namesake(wanted: TableName, table: TableName) -> bool:
    return wanted.name == table.name


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
