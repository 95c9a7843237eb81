"""What is said of an error that ended a session."""

from __future__ import annotations

import pytest

from cdc.errors import (
    CdcError,
    DecodingFailed,
    MappingError,
    OperatorNeeded,
    RequirementMissing,
    SinkDenied,
    SinkUncertain,
    StreamLost,
)
from cdc.failure import facts_of, is_passing, kind_of, state_of
from cdc.lifecycle import OPERATOR, State
from cdc.position import Cause, PositionMismatch, SlotGone
from slots.errors import (
    AuthenticationRefused,
    ServerUnavailable,
    SlotBusy,
    SlotLost,
    SlotMissing,
)
from slots.lsn import Lsn
from tests.unit.cdc.relay_parts import stored_position

MOVED = PositionMismatch(
    "slot walferry stands at 0/9",
    cause=Cause.MOVED,
    position=stored_position(5),
    goes_on_at=Lsn(9),
)
GONE = SlotGone("slot is gone", cause=Cause.DROPPED, position=stored_position(5))


@pytest.mark.parametrize(
    ("exc", "passes"),
    [
        (SlotBusy(), True),
        (ServerUnavailable(), True),
        (StreamLost(), True),
        (SinkUncertain(), True),
        (SinkDenied(), True),
        (AuthenticationRefused(), True),
        (MOVED, False),
        (GONE, False),
        (SlotLost(), False),
        (SlotMissing(), False),
        (RequirementMissing(), False),
        (MappingError(), False),
        (KeyError("a bug"), False),
    ],
)
def test_what_may_pass_by_itself_is_told_from_what_may_not(
    exc: Exception,
    passes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert is_passing(exc) is passes


@pytest.mark.parametrize(
    ("exc", "state"),
    [
        (GONE, State.SLOT_LOST),
        (SlotLost(), State.SLOT_LOST),
        (MOVED, State.POSITION_MISMATCH),
        (OperatorNeeded(), State.PARKED),
        (SlotMissing(), State.PARKED),
    ],
)
def test_each_decision_is_waited_for_in_a_state_of_its_own(
    exc: Exception, state: State
) -> None:
    assert state_of(exc) is state
    assert state in OPERATOR


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (MOVED, "position_mismatch"),
        (GONE, "slot_lost"),
        (CdcError(), "error"),
        (ServerUnavailable(), "ServerUnavailable"),
        (KeyError("a bug"), "bug"),
    ],
)
def test_an_error_has_a_word_for_the_metrics(exc: Exception, kind: str) -> None:
    assert kind_of(exc) == kind


def test_a_disagreement_is_told_with_its_position_and_the_commands_to_choose_from() -> (
    None
):
    assert facts_of(MOVED) == {
        "kind": "position_mismatch",
        "reason": "slot walferry stands at 0/9",
        "remedy": "cdc resnapshot; or cdc adopt --accept-gap 0/9",
        "stored_lsn": "0/5",
        "choices": ["cdc resnapshot", "cdc adopt --accept-gap 0/9"],
    }


def test_what_the_server_cannot_decode_is_told_with_its_commit() -> None:
    known = DecodingFailed("cannot", commit_lsn=Lsn(0x20))

    assert facts_of(known)["commit_lsn"] == "0/20"
    assert "commit_lsn" not in facts_of(DecodingFailed("cannot"))


def test_an_error_of_nobody_is_told_without_a_remedy() -> None:
    assert facts_of(ValueError("what")) == {"kind": "bug", "reason": "what"}
