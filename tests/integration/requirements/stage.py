"""A source that meets every requirement, for tests that break one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from cdc.finding import Finding, Status
from cdc.outbox import parse_tables
from cdc.requirements import Wanted, check, require
from slots.connect import Target, connect

if TYPE_CHECKING:
    from cdc.requirements import SourceFacts
    from tests.postgres_source import Source

HAS_MATRIX = os.environ.get("WALFERRY_TEST_MATRIX") == "1"
MAJORS = ["15", "18", *(["14", "16", "17"] if HAS_MATRIX else [])]
DEFAULT_GROUPS = (
    ("id",),
    ("aggregateid",),
    ("type",),
    ("payload",),
    ("aggregatetype",),
)
PARTITIONED = """
CREATE TABLE outbox (
    id uuid, aggregatetype text, aggregateid text, type text, payload jsonb
) PARTITION BY LIST (type);
CREATE TABLE outbox_a PARTITION OF outbox FOR VALUES IN ('a');
CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT
"""
PASSWORD = "not-a-secret"  # noqa: S105 - of roles that live for one test


def since(oldest: int) -> list[str]:
    """Return the versions under test from this one on."""
    return [major for major in MAJORS if int(major) >= oldest]


def before(newest: int) -> list[str]:
    """Return the versions under test that are older than this one."""
    return [major for major in MAJORS if int(major) < newest]


class Stage:
    """A source, and what a run would ask of it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.dsn = source.dsn

    def wanted(
        self,
        tables: str = "public.outbox",
        groups: tuple[tuple[str, ...], ...] = DEFAULT_GROUPS,
        **changes: str,
    ) -> Wanted:
        """Return what the default settings would ask for, with changes."""
        names: dict[str, Any] = {
            "slot": self.source.slot,
            "plugin": self.source.plugin,
            "publication": self.source.publication,
        }
        return Wanted(
            tables=parse_tables(tables), required_columns=groups, **names | changes
        )

    @property
    def target(self) -> Target:
        """Return how to get in, as the role of the moment."""
        return Target(dsn=SecretStr(self.dsn))

    def act_as(self, role: str) -> None:
        """Connect as this role from now on."""
        self.dsn = make_conninfo(self.source.dsn, user=role, password=PASSWORD)

    async def findings(self, wanted: Wanted | None = None) -> list[Finding]:
        """Run every check."""
        return await check(self.target, wanted or self.wanted())

    async def unmet(self, wanted: Wanted | None = None) -> list[str]:
        """Return the names of the failures."""
        found = await self.findings(wanted)
        return [each.name for each in found if each.status is Status.FAILURE]

    async def finding(self, name: str, wanted: Wanted | None = None) -> Finding:
        """Return the worst finding of a name."""
        found = [each for each in await self.findings(wanted) if each.name == name]
        assert found, f"no finding is called {name}"
        order = list(Status)
        return max(found, key=lambda each: order.index(each.status))

    async def facts(self, wanted: Wanted | None = None) -> SourceFacts:
        """Start a session's first half."""
        async with await connect(self.target) as connection:
            return await require(connection, wanted or self.wanted())

    async def stream(self) -> psycopg.AsyncConnection[Any]:
        """Take the slot, as somebody else; closing the connection gives it back."""
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(
                self.source.dsn, replication="database", application_name="other-relay"
            ),
            autocommit=True,
        )
        await connection.execute(
            f"START_REPLICATION SLOT {self.source.slot} LOGICAL 0/0 (proto_version '1',"
            f" publication_names '{self.source.publication}')".encode()
        )
        return connection

    async def run(self, statements: str, dsn: str | None = None) -> None:
        """Run statements as the administrator, each one by itself."""
        async with await psycopg.AsyncConnection.connect(
            dsn or self.source.dsn, autocommit=True
        ) as connection:
            for statement in statements.split(";"):
                if statement.strip():
                    await connection.execute(statement.encode())
