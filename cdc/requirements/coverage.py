"""Whether every wanted row and column will arrive: tables, publication, columns.

Judgements of what ``tables`` has read; no query here. A finding that makes another one
meaningless (no table, no publication) stands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc import finding
from cdc.outbox import TableName
from cdc.requirements import statements
from cdc.requirements.columns import columns
from cdc.requirements.near_match import near_table
from cdc.requirements.wanted import PGOUTPUT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cdc.finding import Finding
    from cdc.requirements.tables import Table
    from cdc.requirements.wanted import Wanted

_KINDS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
}


def coverage(
    tables: Sequence[Table],
    wanted: Wanted,
    server_version: int,
    existing: Collection[TableName],
) -> Iterator[Finding]:
    """Judge everything between a committed row and the stream.

    Args:
        tables: the wanted ones, as read.
        wanted: what the run asks for.
        server_version: as ``server_version_num``.
        existing: names to suggest when a table is missing.

    """
    if wanted.uses_publication:
        yield from _publication(tables, wanted)
    for table in tables:
        if table.oid is None:
            yield _missing(table, wanted, existing)
        elif table.kind in _KINDS:
            yield _not_a_table(table)
        else:
            yield from _table(table, wanted)
            yield from columns(table, wanted, server_version)


def _publication(tables: Sequence[Table], wanted: Wanted) -> Iterator[Finding]:
    publication = tables[0]
    shown = f"publication {wanted.publication}"
    if not publication.has_publication:
        yield finding.failure(
            "publication.exists",
            f"{shown} does not exist",
            statements.create_publication(wanted.publication, wanted.tables),
        )
        return
    yield finding.ok("publication.exists", f"{shown} exists")
    if publication.inserts:
        yield finding.ok("publication.inserts", f"{shown} publishes inserts")
    else:
        yield finding.failure(
            "publication.inserts",
            f"{shown} does not publish inserts",
            statements.set_publication(wanted.publication, "publish = 'insert'"),
        )


def _missing(table: Table, wanted: Wanted, existing: Collection[TableName]) -> Finding:
    shown = f"table {table.table_name} does not exist"
    near = near_table(table.table_name, existing)
    if near is not None:
        rest = [str(name) for name in wanted.tables if name != table.table_name]
        return finding.failure(
            "outbox.exists",
            f"{shown}; near match: {near} (case and quotes count)",
            f"CDC_OUTBOX__TABLES={','.join([*rest, str(near)])}",
        )
    remedy = "name your own table in CDC_OUTBOX__TABLES"
    if statements.fits_default_columns(wanted):
        remedy = f"`cdc init` makes it, or {remedy}"
    return finding.failure("outbox.exists", shown, remedy)


def _not_a_table(table: Table) -> Finding:
    kind = _KINDS[table.kind or ""]
    return finding.failure(
        "outbox.exists",
        f"{table.table_name} is {kind}: its rows are not in the WAL under its name",
        "name the table that the rows are inserted into in CDC_OUTBOX__TABLES",
    )


def _table(table: Table, wanted: Wanted) -> Iterator[Finding]:
    yield finding.ok("outbox.exists", f"table {table.table_name} exists")
    yield _logged(table)
    if wanted.uses_publication:
        if table.has_publication:
            yield from _published(table, wanted)
    elif table.root is not None:
        yield _is_partition(table)
    yield _identity(table, wanted)
    if table.is_partitioned:
        yield _partitioned(table, wanted)


def _logged(table: Table) -> Finding:
    name = "outbox.logged"
    shown = f"table {table.table_name}"
    if table.persistence == "u" and not table.is_partitioned:
        return finding.failure(
            name,
            f"{shown} is unlogged: its rows are never in the WAL",
            statements.set_logged(table.table_name),
        )
    if table.persistence == "t":
        return finding.failure(
            name,
            f"{shown} is temporary: its rows are never in the WAL",
            "name an ordinary table in CDC_OUTBOX__TABLES",
        )
    if table.leaves_outside_wal:
        leaves = ", ".join(table.leaves_outside_wal)
        return finding.failure(
            name,
            f"{shown}: rows of {leaves} are never in this server's WAL (unlogged,"
            " temporary or foreign)",
            f"ALTER TABLE {table.leaves_outside_wal[0]} SET LOGGED;"
            " or detach that partition",
        )
    return finding.ok(name, f"{shown} is in the WAL")


def _published(table: Table, wanted: Wanted) -> Iterator[Finding]:
    shown = f"publication {wanted.publication}"
    if table.is_partitioned and not table.via_root:
        yield finding.failure(
            "publication.via_root",
            f"{shown} sends rows of {table.table_name} under their partitions' names",
            statements.set_publication(
                wanted.publication, "publish_via_partition_root = true"
            ),
        )
        if table.is_listed:
            return
    if table.is_published:
        yield finding.ok("publication.covers", f"{shown} publishes {table.table_name}")
        yield from _filtered(table, wanted)
    elif table.root is not None:
        yield _is_partition(table)
    else:
        yield finding.failure(
            "publication.covers",
            f"{shown} does not publish {table.table_name}",
            statements.add_to_publication(wanted.publication, [table.table_name]),
        )


def _filtered(table: Table, wanted: Wanted) -> Iterator[Finding]:
    if table.row_filter is not None:
        yield finding.warning(
            "publication.row_filter",
            f"publication {wanted.publication} sends only the rows of"
            f" {table.table_name} that match {table.row_filter}",
            "fine when that is meant, or: "
            + statements.publish_all_columns(
                wanted.publication, table.table_name, None
            ),
        )


def _is_partition(table: Table) -> Finding:
    root = TableName(*(table.root or ("", "")))
    return finding.failure(
        "outbox.root",
        f"{table.table_name} is a partition: its rows come under the name of {root}",
        f"name {root} in CDC_OUTBOX__TABLES, and publish it",
    )


def _identity(table: Table, wanted: Wanted) -> Finding:
    name = "outbox.replica_identity"
    blocks = (
        wanted.plugin == PGOUTPUT
        and table.is_published
        and table.changes
        and table.identity == "n"
    )
    if blocks:
        return finding.warning(
            name,
            f"{table.table_name} has no replica identity and publication"
            f" {wanted.publication} publishes updates and deletes: the server refuses"
            " to UPDATE or DELETE its rows",
            statements.set_publication(wanted.publication, "publish = 'insert'"),
        )
    return finding.ok(
        name,
        f"irrelevant for {table.table_name}: only inserts are read",
    )


def _partitioned(table: Table, wanted: Wanted) -> Finding:
    name = "outbox.partitioned"
    if wanted.uses_publication:
        return finding.warning(
            name,
            f"{table.table_name} is partitioned: an UPDATE that moves a row to another"
            " partition publishes it again, under the same id",
            "never UPDATE the partition key of an outbox row",
        )
    return finding.warning(
        name,
        f"{table.table_name} is partitioned: wal2json names partitions, and one that"
        " is dropped before its rows are decoded stops the relay",
        "CDC_SLOT__PLUGIN=pgoutput with publish_via_partition_root, or drop partitions"
        " only after the relay has passed them",
    )
