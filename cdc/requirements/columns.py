"""Whether every mapped column of a table arrives in the stream.

A column can exist and never arrive: a column list hides it, or it is generated.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from cdc import finding
from cdc.requirements import statements
from cdc.requirements.near_match import near_match

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.finding import Finding
    from cdc.requirements.tables import Table
    from cdc.requirements.wanted import Wanted

_GENERATED_SINCE: Final = 180000
"""From here on a publication can carry stored generated columns."""


class _Fate(enum.Enum):
    ARRIVES = enum.auto()
    HIDDEN = enum.auto()
    STORED = enum.auto()
    VIRTUAL = enum.auto()


def columns(table: Table, wanted: Wanted, server_version: int) -> Iterator[Finding]:
    """Judge each group of mapped columns; one finding when all of them arrive."""
    bad = []
    for group in wanted.required_columns:
        verdict = _group(table, wanted, group, server_version)
        if verdict is not None:
            bad.append(verdict)
    if bad:
        yield from bad
    else:
        yield finding.ok(
            "outbox.columns", f"every mapped column of {table.table_name} arrives"
        )


def _group(
    table: Table, wanted: Wanted, group: tuple[str, ...], server_version: int
) -> Finding | None:
    present = [name for name in group if name in table.columns]
    if not present:
        return _missing(table, group)
    fates = [_fate(table, wanted, name, server_version) for name in present]
    if _Fate.ARRIVES in fates:
        return None
    return _absent(table, wanted, present[0], fates[0], server_version)


def _fate(table: Table, wanted: Wanted, name: str, server_version: int) -> _Fate:
    generated = table.generated[table.columns.index(name)]
    if generated == "v":
        return _Fate.VIRTUAL
    if not wanted.uses_publication:
        return _Fate.ARRIVES
    if generated == "s" and server_version < _GENERATED_SINCE:
        return _Fate.STORED
    published = table.published_columns
    if published is None or name in published:
        return _Fate.ARRIVES
    return _Fate.STORED if generated == "s" else _Fate.HIDDEN


def _missing(table: Table, group: tuple[str, ...]) -> Finding:
    asked = " or ".join(group)
    near = near_match(group[-1], table.columns)
    if near is not None:
        return finding.failure(
            "outbox.columns",
            f"table {table.table_name} has no column {asked}; near match: {near}",
            f"map {near} instead (CDC_OUTBOX__COLUMNS__..., the topic or a header)",
        )
    return finding.failure(
        "outbox.columns",
        f"table {table.table_name} has no column {asked}"
        f" (it has {', '.join(table.columns)})",
        "map a column it has (CDC_OUTBOX__COLUMNS__..., the topic or a header)",
    )


def _absent(
    table: Table, wanted: Wanted, name: str, fate: _Fate, server_version: int
) -> Finding:
    shown = f"column {name} of {table.table_name}"
    if fate is _Fate.VIRTUAL:
        return finding.failure(
            "outbox.columns",
            f"{shown} is a virtual generated column, which is never in the WAL",
            f"map another column, or make {name} an ordinary one that a trigger or"
            " the application fills",
        )
    if fate is _Fate.HIDDEN:
        return finding.failure(
            "publication.columns",
            f"{shown} is hidden by the column list of publication {wanted.publication}",
            statements.publish_all_columns(
                wanted.publication, table.table_name, table.row_filter
            ),
        )
    if server_version < _GENERATED_SINCE:
        return finding.failure(
            "outbox.columns",
            f"{shown} is generated, and pgoutput sends such columns only from"
            " Postgres 18 on",
            f"ALTER TABLE {table.table_name} ALTER COLUMN"
            f" {statements.identifier(name)} DROP EXPRESSION; and let a trigger or"
            " the application fill it, or map another column",
        )
    return finding.failure(
        "publication.columns",
        f"{shown} is generated, and publication {wanted.publication} does not send"
        " generated columns",
        _publish_generated(table, wanted),
    )


def _publish_generated(table: Table, wanted: Wanted) -> str:
    option = statements.set_publication(
        wanted.publication, "publish_generated_columns = stored"
    )
    published = table.published_columns or []
    plain = [
        name
        for name, generated in zip(table.columns, table.generated, strict=True)
        if not generated
    ]
    if set(plain) <= set(published):
        return option
    # A column list overrules the option: it has to go as well.
    return (
        statements.publish_all_columns(
            wanted.publication, table.table_name, table.row_filter
        )
        + " "
        + option
    )
