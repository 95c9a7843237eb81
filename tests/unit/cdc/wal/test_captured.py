"""What real walsenders sent for one script, decoded by both decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.wal import pgoutput, wal2json
from cdc.wal.changes import Begin, Commit, Insert, Relation, Skipped
from cdc.wal.transaction import TransactionAssembler
from tests.data.capture import CAPTURES, captured

if TYPE_CHECKING:
    from cdc.intake import Decoder
    from cdc.wal.changes import Change, Value

LEAVES = {"parted_old": "parted", "parted_rest": "parted"}


def decoder_of(plugin: str) -> Decoder:
    return wal2json.Decoder() if plugin == "wal2json" else pgoutput.Decoder()


def changes_of(plugin: str, major: str) -> list[Change]:
    decoder = decoder_of(plugin)
    return [decoder.decode(message) for message in captured(plugin, major)]


def rows_of(plugin: str, major: str) -> list[tuple[str, dict[str, Value]]]:
    rows = []
    for change in changes_of(plugin, major):
        if isinstance(change, Insert):
            names = [column.name for column in change.relation.columns]
            table = LEAVES.get(change.relation.name, change.relation.name)
            rows.append((table, dict(zip(names, change.values, strict=True))))
    return rows


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_every_message_is_understood_and_transactions_are_whole(
    plugin: str, major: str
) -> None:
    assembler = TransactionAssembler()
    counts: dict[str, int] = {}
    positions = []
    for change in changes_of(plugin, major):
        kind = change.kind if isinstance(change, Skipped) else type(change).__name__
        counts[kind] = counts.get(kind, 0) + 1
        match change:
            case Begin():
                assembler.begin(change)
                positions.append(change.commit_lsn)
            case Insert():
                assembler.insert(change)
            case Commit():
                assembler.commit(change)
            case Relation() | Skipped():
                pass

    assert assembler.open_transaction is None
    assert positions == sorted(set(positions))
    assert counts["Begin"] == counts["Commit"] > 20
    assert counts["update"] == 2
    assert counts["delete"] == 1
    assert counts["truncate"] >= 1
    assert counts["message"] == 2


def test_both_plugins_and_both_servers_tell_the_same_rows() -> None:
    """Apart from NaN and infinity, which wal2json does not tell from NULL."""
    expected = rows_of("pgoutput", "15")
    special = {b"NaN", b"Infinity", b"-Infinity"}
    as_null = [
        (
            table,
            {
                name: None if name in ("n", "f4", "f8") and value in special else value
                for name, value in row.items()
            },
        )
        for table, row in expected
    ]

    assert rows_of("pgoutput", "18") == expected
    assert rows_of("wal2json", "15") == as_null
    assert len(expected) > 25


def test_nothing_of_a_rollback_is_there_and_everything_else_is() -> None:
    texts = [
        row.get("t") for table, row in rows_of("pgoutput", "15") if table == "outbox"
    ]

    for absent in (b"given up", b"rolled back"):
        assert absent not in texts
    wanted = [
        b"kept",
        b"kept too",
        b"two phases",
        b"beside a message",
        b"before",
        b"after",
    ]
    assert [text for text in texts if text in wanted] == wanted
    assert b"toast" * 4000 in texts
