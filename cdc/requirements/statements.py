"""The SQL that makes or mends what a run needs; every name is quoted by the driver.

Statements are text to be shown or executed. Nothing here drops anything that cannot be
made again from the same line.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.outbox import TableName
    from cdc.requirements.wanted import Wanted

DEFAULT_COLUMNS: Final = frozenset(
    {
        "id",
        "aggregatetype",
        "aggregateid",
        "type",
        "payload",
        "headers",
        "created_at",
    }
)
"""What sql/outbox.sql makes."""

_DEFAULT_PLUGINS: Final = ("pgoutput", "test_decoding")
"""The server's own default of ``output_plugin_libraries``."""


def init_statements(wanted: Wanted) -> list[str]:
    """Return what a source needs, in the order in which it has to be made.

    The publication comes before the slot: a slot decodes with the catalogs of the
    change's own time, and a publication made later does not exist for older changes.
    """
    statements = [
        create_table(table)
        if fits_default_columns(wanted)
        else f"-- {table} has to exist already: it is not the default outbox table"
        for table in wanted.tables
    ]
    if wanted.uses_publication:
        statements.append(create_publication(wanted.publication, wanted.tables))
    statements.append(create_slot(wanted.slot, wanted.plugin))
    return statements


def fits_default_columns(wanted: Wanted) -> bool:
    """Tell whether the default outbox table has every mapped column."""
    return all(
        not DEFAULT_COLUMNS.isdisjoint(group) for group in wanted.required_columns
    )


def create_table(table: TableName) -> str:
    """Return the statement for an outbox table of the default columns."""
    text = resources.files("cdc").joinpath("sql/outbox.sql").read_text("utf-8")
    body = "\n".join(
        line for line in text.splitlines() if not line.lstrip().startswith("--")
    )
    return _format(body.strip(), table=_table(table))


def create_publication(publication: str, tables: Iterable[TableName]) -> str:
    """Return the statement for a publication of inserts, attributed to root tables."""
    return _format(
        "CREATE PUBLICATION {publication} FOR TABLE {tables}"
        " WITH (publish = 'insert', publish_via_partition_root = true);",
        publication=sql.Identifier(publication),
        tables=sql.SQL(", ").join(_table(table) for table in tables),
    )


def add_to_publication(
    publication: str, tables: Iterable[TableName], row_filter: str | None = None
) -> str:
    """Return the statement that publishes further tables, with all their columns."""
    suffix = f" WHERE ({row_filter})" if row_filter else ""
    return (
        _format(
            "ALTER PUBLICATION {publication} ADD TABLE {tables}",
            publication=sql.Identifier(publication),
            tables=sql.SQL(", ").join(_table(table) for table in tables),
        )
        + suffix
        + ";"
    )


def publish_all_columns(
    publication: str, table: TableName, row_filter: str | None
) -> str:
    """Return the statements that take a column list away, at once for the WAL."""
    drop = _format(
        "ALTER PUBLICATION {publication} DROP TABLE {table};",
        publication=sql.Identifier(publication),
        table=_table(table),
    )
    add = add_to_publication(publication, [table], row_filter)
    return f"BEGIN; {drop} {add} COMMIT;"


def set_publication(publication: str, option: str) -> str:
    """Return the statement that sets an option, such as ``publish = 'insert'``."""
    return (
        _format(
            "ALTER PUBLICATION {publication} SET (",
            publication=sql.Identifier(publication),
        )
        + option
        + ");"
    )


def create_slot(slot: str, plugin: str) -> str:
    """Return the statement for the slot."""
    return _format(
        "SELECT pg_catalog.pg_create_logical_replication_slot({slot}, {plugin});",
        slot=sql.Literal(slot),
        plugin=sql.Literal(plugin),
    )


def set_logged(table: TableName) -> str:
    """Return the statement that brings a table's rows into the WAL."""
    return _format("ALTER TABLE {table} SET LOGGED;", table=_table(table))


def grant_replication(role: str, *, has_rds_role: bool) -> str:
    """Return the statement that lets a role stream, in the server's own way."""
    if has_rds_role:
        return _format("GRANT rds_replication TO {role};", role=sql.Identifier(role))
    return _format("ALTER ROLE {role} REPLICATION;", role=sql.Identifier(role))


def set_for_role(role: str, setting: str, value: str) -> str:
    """Return the statement that sets a parameter for a role's next sessions."""
    return _format(
        "ALTER ROLE {role} SET {setting} = {value};",
        role=sql.Identifier(role),
        setting=sql.Identifier(setting),
        value=sql.Literal(value),
    )


def rollback_prepared(gid: str) -> str:
    """Return the statement that ends a forgotten prepared transaction."""
    return _format("ROLLBACK PREPARED {gid};", gid=sql.Literal(gid))


def allow_plugin(plugin: str, allowed: Iterable[str] = ()) -> str:
    """Return the statements that let the server load an output plugin.

    The list is not one quoted string: ALTER SYSTEM would write that as a single name.
    """
    names = dict.fromkeys([*_DEFAULT_PLUGINS, *allowed, plugin])
    listed = ", ".join(name if name.isidentifier() else f"'{name}'" for name in names)
    return (
        f"ALTER SYSTEM SET output_plugin_libraries = {listed}; SELECT pg_reload_conf();"
    )


def set_for_server(setting: str, value: str) -> str:
    """Return the statements that change a server parameter without a restart."""
    return f"ALTER SYSTEM SET {setting} = '{value}'; SELECT pg_reload_conf();"


def set_at_start(setting: str, value: str) -> str:
    """Return the statement that changes a server parameter with the next restart."""
    return f"ALTER SYSTEM SET {setting} = '{value}'; then restart the server"


def _table(table: TableName) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def _format(template: str, **parts: sql.Composable) -> str:
    return sql.SQL(template).format(**parts).as_string(None)


def identifier(name: str) -> str:
    """Return a name as SQL has to have it."""
    return _format("{name}", name=sql.Identifier(name))
