"""A row read from the table is the same event, marked, and without a position."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import MappingError
from cdc.outbox import Columns, Event, Mapping, Template
from tests.unit.cdc.outbox.rows import OUTBOX, PLAIN, columns, streamed

if TYPE_CHECKING:
    from cdc.wal.changes import Value

OURS = {"cdc.position", "cdc.xid", "cdc.last", "cdc.replay"}
MAPPING = replace(
    PLAIN,
    columns=Columns(headers=("headers",), partition_key=("tenant",)),
    record_headers=(("eventType", Template.parse("{type}/v1")),),
)
TEXT = st.binary(max_size=30)


def replay(mapping: Mapping, **values: Value) -> Event:
    relation, row = columns(**values)
    binding = mapping.bind(relation, OUTBOX)
    return binding.replayed(row, run_id="r-1", now_ms=1_800_000_000_000)


@given(
    key=TEXT | st.none(),
    payload=TEXT,
    type_name=TEXT | st.none(),
    tenant=TEXT | st.none(),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_all_but_position_transaction_and_time_is_as_from_the_wal(
    key: Value,
    payload: bytes,
    type_name: Value,
    tenant: Value,
    headers: dict[str, str],
) -> None:
    relation, row = columns(
        id=b"id-1",
        aggregatetype=b"order",
        aggregateid=key,
        type=type_name,
        payload__bytea=b"\\x" + payload.hex().encode(),
        headers=json.dumps(headers).encode(),
        tenant=tenant,
    )
    binding = MAPPING.bind(relation, OUTBOX)

    from_wal = streamed(binding, row)
    replayed = binding.replayed(row, run_id="r-1", now_ms=1_800_000_000_000)

    common = [pair for pair in from_wal.headers if pair[0] not in OURS]
    assert replayed.headers == [*common, ("cdc.replay", b"r-1")]
    assert replayed.timestamp_ms == 1_800_000_000_000
    assert replayed == from_wal._replace(
        headers=replayed.headers, timestamp_ms=replayed.timestamp_ms
    )


def test_a_row_cannot_pass_for_a_replay_or_a_streamed_event() -> None:
    forged = {"cdc.replay": "x", "cdc.position": "y", "cdc.xid": "1", "cdc.last": "1"}

    event = replay(
        replace(PLAIN, columns=Columns(headers=("headers",))),
        id=b"1",
        aggregatetype=b"t",
        aggregateid=b"k",
        type=b"x",
        payload=b"{}",
        headers=json.dumps(forged).encode(),
    )

    assert event.headers == [("id", b"1"), ("type", b"x"), ("cdc.replay", b"r-1")]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"id": None}, "a row of public.outbox: its id is NULL"),
        (
            {"aggregateid": None, "payload": None},
            "event id-1 of public.outbox: it has neither key nor payload",
        ),
        (
            {"aggregatetype": b"bad topic/!"},
            "event id-1 of public.outbox: topic .* is not legal",
        ),
    ],
)
def test_a_row_that_cannot_be_an_event_is_named_without_a_transaction(
    values: dict[str, Value], words: str
) -> None:
    given_row: dict[str, Value] = {
        "id": b"id-1",
        "aggregatetype": b"order",
        "aggregateid": b"k",
        "type": b"Placed",
        "payload": b"{}",
    }

    with pytest.raises(MappingError, match=words) as raised:
        replay(PLAIN, **(given_row | values))

    assert "transaction" not in str(raised.value)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 20_000])
def test_the_size_is_never_less_than_the_record_that_kafka_makes_of_it(
    size: int,
) -> None:
    value = b"x" * size
    relation, row = columns(
        id=value, aggregatetype=b"t", aggregateid=value, type=value, payload=value
    )

    event = PLAIN.bind(relation, OUTBOX).replayed(row, run_id="r" * 80, now_ms=1 << 41)

    batch = DefaultRecordBatchBuilder(2, 0, 1, -1, -1, -1, 1 << 30)
    batch.append(0, event.timestamp_ms, event.key, event.value, event.headers)
    assert len(batch.build()) <= event.size_bytes
