"""What is said of an error that ended a session: its kind, its facts, its state."""

from __future__ import annotations

from cdc.errors import CdcError, DecodingFailed, Disposition, disposition
from cdc.lifecycle import State
from cdc.position import Disagreement, SlotGone, choices
from slots.errors import SlotBusy, SlotError, SlotLost


def is_passing(exc: Exception) -> bool:
    """Tell whether it may pass by itself, so that a parked relay need not tell it."""
    is_retryable = disposition(exc, has_streamed=True) is Disposition.RETRY
    return isinstance(exc, SlotBusy) or is_retryable


def is_same(one: Exception, other: Exception | None) -> bool:
    """Tell whether an error is no news; its numbers may have grown meanwhile."""
    if isinstance(one, Disagreement) and isinstance(other, Disagreement):
        return (one.cause, one.reason) == (other.cause, other.reason)
    return str(one) == str(other)


def state_of(exc: Exception) -> State:
    """Return the state in which an operator's decision is waited for."""
    if isinstance(exc, SlotGone | SlotLost):
        return State.SLOT_LOST
    return State.POSITION_MISMATCH if isinstance(exc, Disagreement) else State.PARKED


def kind_of(exc: BaseException) -> str:
    """Name an error for a metric's label: a word from a short list."""
    if isinstance(exc, CdcError):
        return exc.kind
    if isinstance(exc, SlotError):
        return type(exc).__name__
    return "bug"


def facts_of(exc: BaseException) -> dict[str, object]:
    """Return what a log line says of an error."""
    facts: dict[str, object] = {"kind": kind_of(exc), "reason": str(exc)}
    hint = getattr(exc, "hint", "")
    if hint:
        facts["remedy"] = hint
    if isinstance(exc, Disagreement):
        facts["stored_lsn"] = str(exc.position.end_lsn)
        facts["choices"] = [
            command
            for command, _effect in choices(exc.cause, exc.position, exc.goes_on_at)
        ]
    if isinstance(exc, DecodingFailed) and exc.commit_lsn is not None:
        facts["commit_lsn"] = str(exc.commit_lsn)
    return facts
