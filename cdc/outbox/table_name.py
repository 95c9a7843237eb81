"""Table names as a user writes them: SQL identifiers, with their case kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s".,]+))\s*')


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A schema-qualified table name, exactly as the catalog has it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.name)}"


def parse_tables(text: str) -> tuple[TableName, ...]:
    """Read a comma-separated list of ``schema.table``.

    Either half may stand in double quotes (``public."Out,box"``, a quote inside is
    doubled). Unlike in SQL, a name without quotes keeps its case: what is written is
    what is meant.

    Raises ValueError, saying what is wrong and where.
    """
    tables: list[TableName] = []
    offset = 0
    while True:
        parts, offset = _parse_name(text, offset)
        tables.append(TableName(*parts))
        if offset == len(text):
            break
        offset += 1  # the comma
    if len(set(tables)) != len(tables):
        raise ValueError(f"{text!r} names a table twice")
    return tuple(tables)


def _parse_name(text: str, offset: int) -> tuple[tuple[str, str], int]:
    parts: list[str] = []
    while True:
        match = _PART.match(text, offset)
        if match is None:
            raise ValueError(
                f"{text!r}: expected a table name at character {offset + 1}"
                ' (write schema.table, quoted where needed: public."Out,box")'
            )
        quoted, plain = match.groups()
        parts.append(quoted.replace('""', '"') if quoted is not None else plain)
        offset = match.end()
        if offset == len(text) or text[offset] == ",":
            break
        if text[offset] != ".":
            raise ValueError(
                f"{text!r}: unexpected {text[offset]!r} at character {offset + 1}"
            )
        offset += 1
    if len(parts) != 2:  # noqa: PLR2004 - schema and table
        raise ValueError(
            f"{'.'.join(parts)!r} has {len(parts)} part(s), write schema.table"
        )
    return (parts[0], parts[1]), offset


def _quoted(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    return '"' + part.replace('"', '""') + '"'
