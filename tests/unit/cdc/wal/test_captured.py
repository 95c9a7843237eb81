"""What real walsenders sent for one script, decoded by both decoders."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from cdc.wal import frames, pgoutput, wal2json
from cdc.wal.changes import UNCHANGED, Begin, Commit, Insert, Relation, Skipped
from cdc.wal.frames import Keepalive
from cdc.wal.transaction import Transactions
from tests.data.capture import CAPTURES, captured, captured_frames

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


def texts_of(plugin: str, major: str) -> list[Value]:
    return [row.get("t") for table, row in rows_of(plugin, major) if table == "outbox"]


def transactions_of(plugin: str, major: str) -> list[tuple[Begin, Commit]]:
    transactions = Transactions()
    ended = []
    rows = 0
    for change in changes_of(plugin, major):
        match change:
            case Begin():
                transactions.begin(change)
                rows = 0
            case Insert():
                assert transactions.row(change.relation) == rows
                rows += 1
            case Commit():
                begun = transactions.current
                assert begun is not None
                assert transactions.commit(change) == rows
                ended.append((begun, change))
            case Relation() | Skipped():
                pass
    assert transactions.current is None
    return ended


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_every_frame_is_read_and_every_message_understood(
    plugin: str, major: str
) -> None:
    parsed = [
        frames.parse(memoryview(frame)) for frame in captured_frames(plugin, major)
    ]
    counts: dict[str, int] = {}
    for change in changes_of(plugin, major):
        kind = change.kind if isinstance(change, Skipped) else type(change).__name__
        counts[kind] = counts.get(kind, 0) + 1

    assert isinstance(parsed[-1], Keepalive)
    assert sum(isinstance(frame, bytes) for frame in parsed) == sum(counts.values())
    assert counts["Begin"] == counts["Commit"] > 20
    assert counts["update"] == 2
    assert counts["delete"] == 1
    # wal2json tells each truncated table, pgoutput all of them in one message.
    assert counts["truncate"] == (2 if plugin == "wal2json" else 1)
    assert counts["message"] == 2
    if plugin == "pgoutput":
        assert counts["origin"] == 1
        assert counts["type"] >= 3


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_transactions_come_whole_and_in_the_order_of_their_commits(
    plugin: str, major: str
) -> None:
    transactions = transactions_of(plugin, major)

    ends = [(begun.commit_lsn, commit.end_lsn) for begun, commit in transactions]
    assert ends == sorted(set(ends))
    for (_, end), (following, _) in pairwise(ends):
        assert end <= following


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_of_interleaved_transactions_the_one_that_commits_first_comes_first(
    plugin: str, major: str
) -> None:
    xids = [begun.xid for begun, _ in transactions_of(plugin, major)]
    texts = texts_of(plugin, major)

    assert xids != sorted(xids)
    at = texts.index(b"second 0")
    assert texts[at : at + 5] == [
        b"second 0",
        b"second 1",
        b"first 0",
        b"first 1",
        b"first 2",
    ]


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_a_table_changed_inside_a_transaction_has_each_row_by_the_names_of_its_time(
    plugin: str, major: str
) -> None:
    rows = {row.get("t"): row for _, row in rows_of(plugin, major)}

    assert "z" not in rows[b"old layout"]
    assert rows[b"new layout"]["z"] == b"9"
    assert rows[b"with a note"]["note"] == b"d"
    assert "note" not in rows[b"without"]
    assert (rows[b"renamed"]["w"], "v" in rows[b"renamed"]) == (b"x", False)


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_an_inserted_row_is_whole_however_large_and_however_it_is_stored(
    plugin: str, major: str
) -> None:
    rows = [row for _, row in rows_of(plugin, major)]

    assert [row["t"] for row in rows if len(str(row.get("t"))) > 10_000] == [
        b"toast" * 4000
    ]
    assert not any(value is UNCHANGED for row in rows for value in row.values())


@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_values_are_the_text_that_postgres_prints(plugin: str, major: str) -> None:
    rows = [row for table, row in rows_of(plugin, major) if table == "outbox"]

    def column(name: str) -> list[Value]:
        return [row[name] for row in rows if row.get(name) is not None]

    numbers = [
        b"123456789012345678.0123456789",
        b"1" + b"0" * 50,
        b"-1" + b"0" * 400,
        b"0." + b"0" * 399 + b"1",
        b"0.00",
    ]
    assert [number for number in column("n") if number != b"NaN"] == numbers
    floats = [value for value in column("f8") if b"Infinity" not in bytes_of(value)]
    assert floats == [b"0", b"1e+20", b"1.7976931348623157e+308", b"5e-324", b"-0"]
    assert column("i8")[2] == b"-9223372036854775808"
    assert column("b") == [b"t", b"f"]
    assert column("raw") == [b"\\x00ff5c78", b"\\x"]
    assert column("draw") == [b"\\x00ff", b"\\x"]
    assert column("c") == [b"ab   "]
    assert column("j")[0] == rb'{"b" :1,"b":  2, "e": "\u20ac\ud83d\ude00"}'
    assert column("j")[2:] == [rb'{"nul": "\u0000", "lone": "\ud83d"}', b"1e999"]
    assert column("jb")[2] == b'{"n": 1' + b"0" * 400 + b"}"
    assert column("tz") == [b"0044-03-15 00:00:00+00 BC", b"294276-12-31 00:00:00+00"]
    assert column("d") == [b"5874897-12-31", b"-infinity"]
    assert column("ts") == [b"infinity", b"2024-03-01 00:00:00"]


def bytes_of(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


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
    assert len(expected) > 40


def test_nothing_of_a_rollback_is_there_and_everything_else_is() -> None:
    texts = texts_of("pgoutput", "15")

    for absent in (b"given up", b"rolled back"):
        assert absent not in texts
    wanted = [
        b"kept",
        b"kept too",
        b"two phases",
        b"beside a message",
        b"before",
        b"after",
        b"from elsewhere",
    ]
    assert [text for text in texts if text in wanted] == wanted
