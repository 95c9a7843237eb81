"""Which events are new: what the sink tells, remembered exactly and on disk."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import RequirementMissing, SinkUnavailable
from cdc.known_ids import KnownIds
from cdc.outbox import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from types import TracebackType
    from typing import Self


class Asked(NamedTuple):
    """What a read-back was asked."""

    topic: str
    since_ms: int


class Held:
    """A sink's contents that tells ids in pieces as they are given, by topic."""

    def __init__(self, **pieces: Iterable[list[str]]) -> None:
        self.pieces = pieces
        self.asked: list[Asked] = []
        self.failing: Exception | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    async def ids(self, topic: str, *, since_ms: int) -> AsyncIterator[list[str]]:
        self.asked.append(Asked(topic, since_ms))
        for piece in self.pieces.get(topic, ()):
            yield piece
            if self.failing is not None:
                raise self.failing


def event(event_id: str, topic: str = "t") -> Event:
    return Event(event_id, topic, None, None, [], 0, None, 1)


async def new(known: KnownIds, *ids: str, topic: str = "t") -> list[str]:
    events = [event(event_id, topic) for event_id in ids]
    return [one.event_id for one in await known.new(events)]


IDS = st.text(max_size=3) | st.sampled_from(
    ["a", "A", "é", "e\u0301", "1", "01", "a\0"]
)
PAIRS = st.tuples(st.sampled_from(["t", "T", "u", ""]), IDS)


@given(held=st.lists(PAIRS), asked=st.lists(st.lists(PAIRS)))
def test_new_is_what_is_not_held_under_that_topic_and_that_id_to_the_letter(
    held: list[tuple[str, str]], asked: list[list[tuple[str, str]]]
) -> None:
    topics = {topic for topic, _ in held}
    told = {topic: [[one for where, one in held if where == topic]] for topic in topics}

    async def answers() -> list[list[tuple[str, str]]]:
        with KnownIds(Held(**told), since_ms=0) as known:
            return [
                [
                    (one.topic, one.event_id)
                    for one in await known.new([event(i, topic) for topic, i in pairs])
                ]
                for pairs in asked
            ]

    expected = [[pair for pair in pairs if pair not in set(held)] for pairs in asked]
    assert asyncio.run(answers()) == expected


async def test_a_topic_is_read_once_when_its_first_event_comes() -> None:
    held = Held(t=[["1"], [], ["2", "2"]], u=[["3"]])
    with KnownIds(held, since_ms=17) as known:
        assert held.asked == []

        assert await new(known, "1", "2", "3") == ["3"]
        assert await new(known, "1", "2", "3", "3") == ["3", "3"]
        assert await new(known, "1", "3", topic="u") == ["1"]
        assert await new(known, "1", topic="nothing there") == ["1"]

    assert held.asked == [Asked(topic, 17) for topic in ("t", "u", "nothing there")]


async def test_events_of_several_topics_keep_their_order() -> None:
    with KnownIds(Held(t=[["1"]], u=[["2"]]), since_ms=0) as known:
        events = [event("2"), event("1", "u"), event("1"), event("2", "u"), event("3")]

        assert await known.new(events) == [events[0], events[1], events[4]]


async def test_where_nothing_can_be_read_back_every_event_is_new() -> None:
    with KnownIds(None, since_ms=0) as known:
        assert await new(known, "1", "1", "2") == ["1", "1", "2"]


async def test_a_topic_that_was_read_in_part_is_read_again() -> None:
    held = Held(t=[["1"], ["2"]])
    held.failing = SinkUnavailable("gone")
    with KnownIds(held, since_ms=0) as known:
        with pytest.raises(SinkUnavailable, match="gone"):
            await new(known, "2")

        held.failing = None
        assert await new(known, "1", "2", "3") == ["3"]


async def test_what_was_known_is_forgotten_at_the_end() -> None:
    held = Held(t=[["1"]])
    known = KnownIds(held, since_ms=0)
    with known:
        assert await new(known, "1") == []
    held.pieces = {}
    with known:
        assert await new(known, "1") == ["1"]


def long_ids(count: int) -> Iterator[list[str]]:
    """Yield ids in no order that weigh a fifth of a kilobyte each."""
    for _ in range(count // 1000):
        yield [f"{uuid.uuid4()}{'-':>160}" for _ in range(1000)]


async def test_three_hundred_thousand_ids_take_less_memory_than_they_weigh() -> None:
    last = [str(uuid.uuid4())]
    held = Held(t=[*long_ids(1000), last], u=long_ids(300_000))
    with KnownIds(held, since_ms=0) as known:
        assert await new(known, *last) == []
        before = resident_bytes()

        assert await new(known, *last, topic="u") == last

        assert resident_bytes() - before < 32 << 20


async def test_a_full_disk_is_named_and_nothing_passes_for_known() -> None:
    with KnownIds(Held(t=long_ids(200_000)), since_ms=0) as known:
        with (
            files_of_at_most(1 << 20),
            pytest.raises(RequirementMissing, match="temporary file") as raised,
        ):
            await new(known, "1")
        assert "SQLITE_TMPDIR" in raised.value.hint


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Have the kernel refuse what would make a file larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
