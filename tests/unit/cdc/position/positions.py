"""Parts for tests of the position: a record, and any record there could be."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cdc.position import Anchor, Overlap, Position, Sample, Unfinished
from slots.lsn import Lsn

LIMIT = 1 << 64
SYSTEM = "7300000000000000001"
PARTS = {"publication walferry": "16400:740", "table public.outbox": "16402:741"}

lsns = st.integers(0, LIMIT - 1).map(Lsn)
numbers = st.integers(0, LIMIT)
texts = st.text(max_size=12)
snapshots = st.builds(
    lambda xmin, xmax, running: f"{xmin}:{xmax}:{','.join(map(str, running))}",
    numbers,
    numbers,
    st.lists(numbers, max_size=3),
)
positions = st.builds(
    Position,
    name=texts,
    term=numbers,
    epoch=numbers,
    system_id=texts,
    timeline=numbers,
    database=texts,
    slot=texts,
    plugin=texts,
    end_lsn=lsns,
    anchor=st.none() | st.builds(Anchor, lsns, numbers, numbers, texts),
    horizon=st.none() | numbers,
    samples=st.lists(
        st.builds(Sample, numbers, numbers, lsns, numbers), max_size=3
    ).map(tuple),
    fingerprint=st.dictionaries(texts, texts, max_size=3),
    stored_at_ms=numbers,
    unfinished=st.none()
    | st.builds(
        Unfinished,
        run_id=texts,
        bounds=st.dictionaries(texts, texts, max_size=2),
        began_at_ms=numbers,
    ),
    overlap=st.none() | st.builds(Overlap, snapshots, lsns),
    given_up=lsns,
    doubt=texts,
    recovered=st.lists(texts, max_size=2).map(tuple),
)
"""Any record there could be."""


def position(end_lsn: int = 1000, **changes: Any) -> Position:
    """Give the record of a relay that is at ``end_lsn``."""
    facts: dict[str, Any] = {
        "name": "shop.walferry",
        "term": 3,
        "epoch": 0,
        "system_id": SYSTEM,
        "timeline": 1,
        "database": "shop",
        "slot": "walferry",
        "plugin": "pgoutput",
        "end_lsn": Lsn(end_lsn),
        "fingerprint": PARTS,
    }
    return Position(**facts | changes)
