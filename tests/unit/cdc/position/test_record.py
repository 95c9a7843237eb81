"""The record survives being stored, and nothing that is none is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.position import Anchor, Overlap, Position, Sample, Unfinished, parse
from slots.lsn import Lsn
from tests.unit.cdc.position.positions import position, positions

FULL = position(
    anchor=Anchor(Lsn(990), 740, 1_700_000_000_000_000, "id-1"),
    horizon=739,
    samples=(Sample(739, 745, Lsn(900), 1_700_000_000_000),),
    unfinished=Unfinished(run_id="r", bounds={"since": "t"}, began_at_ms=7),
    overlap=Overlap("739:745:740,741", Lsn(1200)),
    doubt="another volume",
    recovered=("dropped:",),
)
OLDEST = (
    "version",
    "name",
    "term",
    "epoch",
    "system_id",
    "timeline",
    "database",
    "slot",
    "plugin",
    "end_lsn",
)
"""Members that every record has."""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.just("0/1A"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def document_of(subject: Position) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(subject.document())
    return found


def parsed(members: object) -> Position:
    return parse(json.dumps(members).encode())


@given(subject=positions)
def test_every_position_survives_being_stored(subject: Position) -> None:
    assert parse(subject.document()) == subject


def test_a_record_with_everything_in_it_survives_being_stored() -> None:
    assert parse(FULL.document()) == FULL


def test_a_record_stays_small_enough_for_a_message() -> None:
    samples = tuple(
        Sample(1 << 40, 1 << 40, Lsn((1 << 63) + n), 1 << 41) for n in range(24)
    )

    assert len(position(samples=samples).document()) < 4096


def test_members_that_an_older_relay_did_not_write_mean_that_nothing_is_known() -> None:
    members = document_of(FULL)

    found = parsed({name: members[name] for name in OLDEST})

    assert found == position(fingerprint={})


def test_members_of_a_later_relay_are_left_alone() -> None:
    assert parsed(document_of(FULL) | {"of_tomorrow": [1]}) == FULL


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_a_record_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match=f"version .* is not {1}"):
        parsed(document_of(FULL) | {"version": version})


@pytest.mark.parametrize("member", OLDEST)
def test_a_record_without_a_member_that_all_have_is_refused(member: str) -> None:
    members = document_of(FULL)
    del members[member]

    with pytest.raises(ValueError, match=member):
        parsed(members)


@given(data=st.data())
def test_a_record_that_was_cut_off_is_refused(data: st.DataObject) -> None:
    whole = FULL.document()
    length = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(ValueError):  # noqa: PT011 - the text is json's own
        parse(whole[:length])


@given(junk=st.binary(max_size=40) | json_values.map(lambda v: json.dumps(v).encode()))
@example(b"[" * 100_000)
@example(b"\xff\xfe")
@example(b"null")
def test_what_is_no_record_is_refused_and_raises_nothing_else(junk: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any text will do
        parse(junk)


WRONG: dict[str, dict[str, Any]] = {
    "a number for a name": {"name": 5},
    "a text for a number": {"term": "3"},
    "a fraction": {"epoch": 1.5},
    "a truth value for a number": {"timeline": True},
    "a number for a cluster": {"system_id": 73},
    "null for a database": {"database": None},
    "a number for an LSN": {"end_lsn": 1000},
    "an LSN that is none": {"end_lsn": "0/XYZ"},
    "an anchor that is cut off": {"anchor": ["0/3DE"]},
    "an anchor with members": {"anchor": {"end_lsn": "0/3DE"}},
    "an empty text for no anchor": {"anchor": ""},
    "infinity in an anchor": {"anchor": ["0/3DE", float("inf"), 0, ""]},
    "a text for a horizon": {"horizon": "739"},
    "samples that are none": {"samples": [[1, 2]]},
    "null for no samples": {"samples": None},
    "a sample of texts": {"samples": [["1", "2", "0/1", "4"]]},
    "pairs for a fingerprint": {"fingerprint": [["a", "b"]]},
    "a number in a fingerprint": {"fingerprint": {"a": 1}},
    "a time that is no number": {"stored_at_ms": "now"},
    "an empty list for nothing unfinished": {"unfinished": []},
    "nothing in what is unfinished": {"unfinished": {}},
    "bounds that are none": {
        "unfinished": {"run_id": "r", "bounds": "all", "began_at_ms": 1}
    },
    "a snapshot that is none": {"overlap": ["739", "0/4B0"]},
    "a snapshot with a comma too many": {"overlap": ["739:745:740,", "0/4B0"]},
    "a number for a snapshot": {"overlap": [739, "0/4B0"]},
    "a doubt that is no text": {"doubt": False},
    "causes that are no texts": {"recovered": [1]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_member_of_the_wrong_type_is_refused(wrong: str) -> None:
    """A wrong position is worse than none: nothing is converted or guessed."""
    members = document_of(FULL) | WRONG[wrong]

    with pytest.raises(ValueError):  # noqa: PT011 - each has a text of its own
        parsed(members)


@given(data=st.data(), value=json_values)
def test_whatever_a_member_is_it_is_read_as_stored_or_refused(
    data: st.DataObject, value: object
) -> None:
    member = data.draw(st.sampled_from(sorted(document_of(FULL))))
    document = json.dumps(document_of(FULL) | {member: value}).encode()

    try:
        found = parse(document)
    except ValueError:
        return

    again = document_of(found)[member]
    assert again == value or (member, value) == ("end_lsn", again.lower())


@given(
    xmax=st.integers(1 << 32, 1 << 40),
    since_xmin=st.integers(0, 1 << 20),
    data=st.data(),
)
def test_an_overlap_shows_what_its_snapshot_shows(
    xmax: int, since_xmin: int, data: st.DataObject
) -> None:
    """Told by 32 bits of the id, as the stream has it."""
    xmin = xmax - since_xmin
    running = (
        data.draw(st.sets(st.integers(xmin, xmax - 1), max_size=5))
        if since_xmin
        else set()
    )
    full = data.draw(
        st.integers(xmin - 100, xmax + 100) | st.sampled_from(sorted(running) or [xmax])
    )
    overlap = Overlap(f"{xmin}:{xmax}:{','.join(map(str, sorted(running)))}", Lsn(9))

    is_shown = full < xmax and full not in running

    assert overlap.shows(full & ((1 << 32) - 1)) is is_shown
