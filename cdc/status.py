"""When the server is due a status update, and when it asks too much.

Pure: time is an argument, in seconds of any steady clock.
"""

from __future__ import annotations

from typing import Final

REPLY_PAUSE_S: Final = 0.1
"""Between two answers: a server that shuts down asks as fast as it is answered."""

CONFIRM_PAUSE_S: Final = 0.1
"""A position that has moved is told this soon, without waiting for the timer: what is
not told comes again after a crash of ours. An update is 34 bytes."""

ASKING_PAUSE_S: Final = 0.5
"""Requests closer together than this are a server shutting down, no routine."""


class StatusSchedule:
    """Decides when the next status update goes out (rule 2).

    Args:
        interval_s: no pause between two updates is longer.
        now: when the stream began.

    """

    def __init__(self, interval_s: float, *, now: float) -> None:
        self._interval_s = interval_s
        self._sent_at = now
        self._asked_at: float | None = None
        self._asking_since = now
        self._is_asked = False
        self._has_moved = False

    def asked(self, *, now: float) -> None:
        """Take note of a keepalive that wants a reply."""
        if self._asked_at is None or now - self._asked_at > ASKING_PAUSE_S:
            self._asking_since = now
        self._asked_at = now
        self._is_asked = True

    def moved(self) -> None:
        """Take note that the confirmed position has changed."""
        self._has_moved = True

    def sent(self, *, now: float) -> None:
        """Take note that a status update went out."""
        self._sent_at = now
        self._is_asked = False
        self._has_moved = False

    def wait_s(self, *, now: float) -> float:
        """Tell how many seconds may pass until the next update; 0 when it is due."""
        pause = self._interval_s
        if self._has_moved:
            pause = min(pause, CONFIRM_PAUSE_S)
        if self._is_asked:
            pause = min(pause, REPLY_PAUSE_S)
            if self._asking_since == self._asked_at:
                # A first question is answered at once, only repeats are held back.
                pause = 0.0
        return max(0.0, self._sent_at + pause - now)

    def asked_for_s(self, *, now: float) -> float:
        """Tell how long the server has been asking without a pause; 0 if it is not."""
        if self._asked_at is None or now - self._asked_at > ASKING_PAUSE_S:
            return 0.0
        return now - self._asking_since
