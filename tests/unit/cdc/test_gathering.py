"""Events flow before their commit is read; only the last of a transaction says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cdc.gathering import Gathering
from cdc.outbox import LAST, Event
from cdc.position import Anchor
from cdc.wal.changes import Begin
from slots.lsn import Lsn

if TYPE_CHECKING:
    from cdc.outbox import EventBatch

SIZE_BYTES = 10


def begun(number: int) -> Begin:
    return Begin(xid=number, commit_lsn=Lsn(100 * number), committed_at_us=7 * number)


def event(name: str) -> Event:
    return Event(name, "t", b"k", b"v", [], 0, b"k", SIZE_BYTES)


def gather(gathering: Gathering, transaction: int, *names: str) -> None:
    for name in names:
        if name == names[0]:
            gathering.begin(begun(transaction), event(name))
        else:
            gathering.add(event(name))


def ids(batch: EventBatch) -> list[str]:
    return [event.event_id for event in batch.events]


# The sizes of transactions, and behind which of the events all is handed over.
CUTS = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=12)


@given(CUTS)
def test_every_event_comes_once_in_order_and_only_the_last_is_marked(
    transactions: list[list[bool]],
) -> None:
    gathering = Gathering()
    sent: list[Event] = []
    ends: list[Lsn | None] = []
    expected: list[tuple[str, bool]] = []
    for number, cuts in enumerate(transactions, 1):
        for index, cut in enumerate(cuts):
            expected.append((f"{number}/{index}", index == len(cuts) - 1))
            if index:
                gathering.add(event(f"{number}/{index}"))
            else:
                gathering.begin(begun(number), event(f"{number}/0"))
            # All but the newest may go, however large its transaction gets.
            assert len(gathering) + len(sent) == len(expected) - 1
            if cut:
                gathering = hand_over(gathering, sent, ends)
        gathering.end(Lsn(100 * number + 50))
        assert len(gathering) + len(sent) == len(expected)
    hand_over(gathering, sent, ends)

    assert [(one.event_id, one.headers == [LAST]) for one in sent] == expected
    assert all(one.headers in ([], [LAST]) for one in sent)
    told = [end for end in ends if end is not None]
    assert told == sorted(set(told))
    assert told[-1:] == [Lsn(100 * n + 50) for n in [len(transactions)] if n]


def hand_over(
    gathering: Gathering, sent: list[Event], ends: list[Lsn | None]
) -> Gathering:
    """Send what may be sent; its count and size have to be those that are told."""
    count = len(gathering)
    rest = gathering.split()
    batch = gathering.batch()
    assert len(batch.events) == count
    assert batch.size_bytes == count * SIZE_BYTES
    assert rest.size_bytes in (0, SIZE_BYTES)
    anchor = gathering.anchor
    assert (anchor and anchor.end_lsn) == batch.end_lsn
    if anchor is not None:
        last = [one.event_id for one in batch.events if one.headers][-1]
        assert anchor.event_id == last
    sent.extend(batch.events)
    ends.append(batch.end_lsn)
    return rest


def test_the_anchor_is_the_last_transaction_that_ends_in_it() -> None:
    gathering = Gathering()
    gather(gathering, 1, "a", "b")
    assert gathering.anchor is None
    gathering.end(Lsn(150))
    gather(gathering, 2, "c", "d")

    assert gathering.anchor == Anchor(Lsn(150), 1, 7, "b")
    assert (gathering.transactions, gathering.committed_at_us) == (1, 7)


def test_what_goes_on_has_the_time_of_its_own_transaction() -> None:
    gathering = Gathering()
    gather(gathering, 1, "a")
    gathering.end(Lsn(150))
    gather(gathering, 2, "b", "c")

    rest = gathering.split()

    assert ids(gathering.batch()) == ["a", "b"]
    assert rest.committed_at_us == 14
    rest.end(Lsn(250))
    assert ids(rest.batch()) == ["c"]
    assert rest.anchor == Anchor(Lsn(250), 2, 14, "c")


def test_a_transaction_without_its_end_can_be_dropped() -> None:
    gathering = Gathering()
    gather(gathering, 1, "a")
    gathering.end(Lsn(150))
    gather(gathering, 2, "b", "c")

    gathering.keep_whole()

    assert len(gathering) == 1
    assert gathering.size_bytes == SIZE_BYTES
    assert len(gathering.split()) == 0
    assert ids(gathering.batch()) == ["a"]


def test_an_empty_one_is_false_and_has_nothing() -> None:
    gathering = Gathering()

    assert not gathering
    assert not gathering.split()
    assert gathering.batch().events == []
    assert gathering.batch().end_lsn is None
