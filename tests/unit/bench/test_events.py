"""Loads are of the size they say, in the transactions they say."""

from __future__ import annotations

import re

import pytest

from bench.events import Events


@pytest.mark.parametrize(
    ("count", "rows", "made"),
    [(20_000, 1, 20_000), (20_001, 5, 20_000), (400, 1_000, 1_000), (7, 7, 7)],
)
def test_a_load_has_whole_transactions_and_at_least_one(
    count: int, rows: int, made: int
) -> None:
    assert Events.about(count, rows).count == made


@pytest.mark.parametrize("rows", [1, 5, 1_000, 130_000])
def test_the_statements_loop_over_every_transaction_once(rows: int) -> None:
    events = Events.about(130_000, rows)

    found = [
        re.search(r"FOR t IN (\d+)\.\.(\d+) LOOP", statement)
        for statement in events.statements()
    ]

    numbers = [
        number
        for loop in found
        if loop
        for number in range(int(loop[1]), int(loop[2]) + 1)
    ]
    assert numbers == list(range(events.count // rows))


def test_every_kind_has_a_topic() -> None:
    assert Events(count=5, kinds=2).topics("p") == ["p.order0", "p.order1"]


def test_other_tables_have_transactions_of_their_own() -> None:
    [statement] = Events(count=5, has_noise=True).statements()

    assert statement.count("COMMIT;") == 2
    assert "public.noise" not in next(Events(count=5).statements())


def test_a_large_payload_is_nothing_that_could_be_compressed() -> None:
    [small] = Events(count=5).statements()
    [large] = Events(count=5, payload_bytes=10_000).statements()

    assert "repeat(" in small
    assert "md5(" in large
