"""Each way in which a server may disagree is named, and its commands with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc.errors import ExitCode, exit_code
from cdc.position import (
    Anchor,
    Cause,
    Disagreement,
    PositionMismatch,
    Sample,
    Seen,
    SlotGone,
    SlotSeen,
    Unfinished,
    agree,
    changed_publication,
    choices,
    continued,
    history_end,
    screen,
    waits_for_promotion,
)
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import stored_position

if TYPE_CHECKING:
    from cdc.position import Position

ANCHOR = Anchor(Lsn(900), 77, 1_700_000_000_000_000, "e-1")
FINGERPRINT = {"publication walferry": "1:2", "table public.outbox": "3:4"}


def position(**changes: Any) -> Position:
    return stored_position(
        1000,
        **{
            "anchor": ANCHOR,
            "fingerprint": FINGERPRINT,
            "stored_at_ms": 1_700_000_000_000,
        }
        | changes,
    )


def seen(**changes: Any) -> Seen:
    facts: dict[str, Any] = {
        "system_id": "1",
        "timeline": 1,
        "wal_position": Lsn(5000),
        "database": "db",
        "slot": SlotSeen(confirmed=Lsn(1000)),
        "fingerprint": FINGERPRINT,
    }
    return Seen(**facts | changes)


def disagreement(stored: Position, found: Seen) -> Disagreement:
    with pytest.raises(Disagreement) as refused:
        agree(stored, found)
    assert exit_code(refused.value, has_streamed=False) is ExitCode.OPERATOR
    return refused.value


def test_a_server_as_it_was_left_is_agreed_with() -> None:
    agree(position(), seen())
    agree(position(), seen(slot=SlotSeen(confirmed=Lsn(10))))  # it has forgotten
    agree(position(), seen(slot=SlotSeen(confirmed=None)))
    agree(position(), seen(fingerprint={**FINGERPRINT, "table public.b": "9:9"}))
    agree(position(), seen(fingerprint={}))  # another plugin reads none


@pytest.mark.parametrize(
    ("changes", "cause", "words"),
    [
        ({"slot": None}, Cause.DROPPED, "does not exist any more"),
        (
            {"slot": SlotSeen(confirmed=Lsn(1000), is_lost=True)},
            Cause.INVALIDATED,
            "raise max_slot_wal_keep_size to at least 1MB",
        ),
        (
            {
                "slot": SlotSeen(
                    confirmed=Lsn(1000), is_lost=True, reason="idle_timeout"
                )
            },
            Cause.INVALIDATED,
            r"\(idle_timeout\)",
        ),
        ({"slot": SlotSeen(confirmed=Lsn(1001))}, Cause.MOVED, "made anew"),
        ({"system_id": "2"}, Cause.CLUSTER, "of cluster 2"),
        ({"database": "other"}, Cause.DATABASE, "not other"),
        ({"wal_position": Lsn(999)}, Cause.BEHIND, "WAL ends at 0/3E7"),
        ({"timeline": 2}, Cause.TIMELINE, "does not come from"),
        (
            {"timeline": 2, "switches": {1: Lsn(899)}},
            Cause.TIMELINE,
            "never had what consumers have seen",
        ),
        (
            {"fingerprint": {**FINGERPRINT, "table public.outbox": "5:6"}},
            Cause.PUBLICATION,
            "table public.outbox: changed",
        ),
    ],
)
def test_every_disagreement_has_its_name(
    changes: dict[str, Any], cause: Cause, words: str
) -> None:
    found = disagreement(position(), seen(**changes))
    assert found.cause is cause
    with pytest.raises(Disagreement, match=words):
        raise found
    is_loss = cause in (Cause.DROPPED, Cause.INVALIDATED)
    assert isinstance(found, SlotGone if is_loss else PositionMismatch)
    assert found.hint


def test_an_idle_position_beyond_the_switch_concerns_nobody() -> None:
    promoted = seen(
        timeline=2, switches={1: Lsn(950)}, slot=SlotSeen(confirmed=Lsn(940))
    )
    agree(position(), promoted)
    assert history_end(position(), promoted) == Lsn(950)
    moved = seen(timeline=2, switches={1: Lsn(950)}, slot=SlotSeen(confirmed=Lsn(960)))
    assert disagreement(position(), moved).cause is Cause.MOVED


def test_a_slot_that_a_promoted_standby_never_had_is_no_drop() -> None:
    promoted = seen(timeline=2, switches={1: Lsn(950)}, slot=None)
    found = disagreement(position(), promoted)
    assert found.cause is Cause.DROPPED
    assert "(a standby without it was promoted, to timeline 2)" in str(found)
    assert "promoted" not in str(disagreement(position(), seen(slot=None)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wal_position": Lsn(999)}, "WAL up to"),
        ({"slot": None}, "no slot walferry"),
        ({"slot": SlotSeen(confirmed=Lsn(9), is_copy=True)}, "cannot be read"),
    ],
)
def test_a_standby_is_waited_for_until_it_can_be_judged(
    changes: dict[str, Any], said: str
) -> None:
    assert said in waits_for_promotion(position(), seen(is_standby=True, **changes))
    # Promoted, it is judged; so is a standby of another cluster.
    assert waits_for_promotion(position(), seen(**changes)) == ""
    foreign = seen(is_standby=True, system_id="2", **changes)
    assert waits_for_promotion(position(), foreign) == ""


def test_a_standby_with_a_slot_of_its_own_is_not_waited_for() -> None:
    assert waits_for_promotion(position(), seen(is_standby=True)) == ""


def test_before_the_first_event_any_switch_is_accepted() -> None:
    agree(
        position(anchor=None),
        seen(timeline=3, switches={1: Lsn(5)}, slot=SlotSeen(confirmed=Lsn(5))),
    )


def test_an_unfinished_resnapshot_and_a_doubt_stop_a_start() -> None:
    begun = Unfinished(run_id="r1", bounds={}, began_at_ms=1)
    found = disagreement(position(unfinished=begun), seen(slot=None))
    assert found.cause is Cause.UNFINISHED
    assert found.hint == "cdc resnapshot"
    doubted = disagreement(position(doubt="a volume was put back"), seen())
    assert doubted.cause is Cause.DOUBT
    assert not doubted.is_same_history


def test_what_goes_on_across_a_promotion_forgets_what_was_behind_the_switch() -> None:
    samples = (Sample(10, 12, Lsn(800), 1), Sample(20, 22, Lsn(990), 2))
    stored = position(samples=samples, horizon=20)
    promoted = seen(timeline=2, switches={1: Lsn(950)})
    after = continued(stored, promoted)
    assert (after.timeline, after.term, after.end_lsn) == (2, 2, Lsn(950))
    assert (after.samples, after.horizon) == (samples[:1], 10)
    assert continued(position(samples=samples[1:]), promoted).horizon is None

    same = continued(stored, seen())
    assert (same.samples, same.horizon, same.end_lsn) == (samples, 20, Lsn(1000))


def test_what_is_not_acknowledged_makes_no_horizon_across_a_promotion() -> None:
    """Both histories have it, but it was never delivered."""
    samples = (Sample(10, 12, Lsn(800), 1), Sample(20, 22, Lsn(1100), 2))
    stored = position(samples=samples, horizon=10)
    after = continued(stored, seen(timeline=2, switches={1: Lsn(1200)}))
    assert (after.samples, after.horizon) == (samples, 10)
    assert after.end_lsn == Lsn(1000)


def test_a_changed_publication_was_last_seen_whole_with_the_newest_sample() -> None:
    stored = position(samples=(Sample(1, 1, Lsn(0x900), 1),))
    changed = {"publication walferry": "9:9"}
    found = changed_publication(stored, changed, goes_on_at=Lsn(1000))
    assert found is not None
    assert "since 0/900" in str(found)
    assert changed_publication(stored, FINGERPRINT, goes_on_at=None) is None


@pytest.mark.parametrize("cause", list(Cause))
def test_one_screen_says_what_happened_and_what_to_choose_from(cause: Cause) -> None:
    found = PositionMismatch(
        "something", cause=cause, position=position(), goes_on_at=Lsn(0x2000)
    )
    found.wal_bytes = 3 << 20
    shown = "\n".join(screen(found, now_ms=1_700_000_000_000 + 3_600_000))
    for command, effect in choices(cause, found.position, found.goes_on_at):
        assert command in shown
        assert effect in shown
    assert "transaction 77, ends at 0/384" in shown
    assert "3 MB, 3 MB an hour" in shown
    assert len(shown.splitlines()) <= 24
    if cause is Cause.MOVED:
        assert "between 0/3E8 and 0/2000" in shown
        assert "cdc adopt --accept-gap 0/2000" in shown


def test_a_screen_without_an_event_and_without_a_rate() -> None:
    found = SlotGone("gone", cause=Cause.DROPPED, position=position(anchor=None))
    shown = "\n".join(screen(found, now_ms=0))
    assert "none yet" in shown
    assert "WAL since then  unknown" in shown
    assert "--accept-gap 0/3E8" in shown


def test_a_part_that_the_publication_lacks_is_remembered_until_it_is_put_back() -> None:
    """A start that finds it missing, and is refused, must not forget it.

    Rows committed while it was away never arrive.
    """
    outside = seen(fingerprint={"publication walferry": "1:2"})
    gone = seen(fingerprint={})
    put_back = seen(fingerprint={**FINGERPRINT, "table public.outbox": "3:9"})

    refused_twice = continued(continued(position(), outside), gone)

    found = disagreement(refused_twice, put_back)
    assert found.cause is Cause.PUBLICATION
    assert "table public.outbox" in str(found)


def test_what_was_added_to_the_publication_is_remembered_from_then_on() -> None:
    grown = {**FINGERPRINT, "table public.b": "9:9"}

    after = continued(position(), seen(fingerprint=grown))

    changed = seen(fingerprint={**grown, "table public.b": "9:10"})
    assert disagreement(after, changed).cause is Cause.PUBLICATION
