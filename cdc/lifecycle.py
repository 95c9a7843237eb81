"""The relay's states, the moves between them, and the pauses between attempts.

Everything that may change the state is a line of ``MOVES``; the supervisor only carries
out. Time and chance are arguments.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class State(enum.StrEnum):
    """What the relay is doing."""

    STARTING = "starting"
    """Connecting, checking what a run needs."""
    WAITING = "waiting"
    """Another process streams from the slot; it is left alone."""
    STREAMING = "streaming"
    """Rows flow, or would if there were any. The only state that is ready."""
    RETRYING = "retrying"
    """A session ended with an error that may pass; pausing before the next."""
    STUCK = "stuck"
    """The server fails at the same position again and again."""
    DRAINING = "draining"
    """Told to stop; waiting for acknowledgements."""
    RESNAPSHOT = "resnapshot"
    """Publishing rows from the table, and making the slot anew."""
    SLOT_LOST = "slot_lost"
    """The slot is gone or of no use; an operator has to decide."""
    POSITION_MISMATCH = "position_mismatch"
    """Slot or server is not as it was left; an operator has to decide."""
    PARKED = "parked"
    """An operator has to decide about something else."""
    STOPPED = "stopped"


OPERATOR: frozenset[State] = frozenset(
    {State.SLOT_LOST, State.POSITION_MISMATCH, State.PARKED}
)
"""Somebody has to decide. With an endpoint the relay stays in here, alive, so that the
metrics can be read, and looks now and then whether the decision has been made."""

MOVES: dict[State, frozenset[State]] = {
    State.STARTING: OPERATOR
    | {
        State.STREAMING,
        State.WAITING,
        State.RETRYING,
        State.STUCK,
        State.RESNAPSHOT,
        State.DRAINING,
        State.STOPPED,
    },
    State.WAITING: OPERATOR | {State.STARTING, State.STOPPED},
    State.STREAMING: OPERATOR
    | {
        State.RETRYING,
        State.WAITING,
        State.STUCK,
        State.RESNAPSHOT,
        State.DRAINING,
        State.STOPPED,
    },
    State.RESNAPSHOT: OPERATOR
    | {State.STARTING, State.RETRYING, State.WAITING, State.DRAINING, State.STOPPED},
    State.RETRYING: frozenset({State.STARTING, State.RESNAPSHOT, State.STOPPED}),
    State.STUCK: frozenset({State.STARTING, State.STOPPED}),
    State.DRAINING: frozenset({State.STOPPED}),
    **dict.fromkeys(
        OPERATOR, OPERATOR | {State.STREAMING, State.RESNAPSHOT, State.STOPPED}
    ),
    State.STOPPED: frozenset(),
}


def move(current: State, target: State) -> State:
    """Return the target; raise ValueError for a move that the table does not have."""
    if target is not current and target not in MOVES[current]:
        raise ValueError(f"no way from {current} to {target}")
    return target


def delays(
    initial_s: float, maximum_s: float, *, chance: Callable[[], float]
) -> Iterator[float]:
    """Yield pauses in seconds: doubling up to a maximum, each with jitter.

    Args:
        initial_s: the first pause, before jitter.
        maximum_s: no pause is longer.
        chance: a number from 0 up to 1, anew at each call. A pause is between half and
            all of its step, so that many relays do not come back in one moment.

    """
    step = initial_s
    while True:
        yield min(step, maximum_s) * (0.5 + 0.5 * chance())
        step = min(step * 2, maximum_s)


class Repeats:
    """Notices that the same failure comes again at the same place.

    Args:
        limit: how many times in a row make it *stuck*.

    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: object = None
        self._count = 0

    def seen(self, failure: object) -> bool:
        """Take note of a failure; tell whether it has now come often enough."""
        self._count = self._count + 1 if failure == self._last else 1
        self._last = failure
        return self._count >= self._limit

    def clear(self) -> None:
        """Forget: something went well."""
        self._last = None
        self._count = 0
