"""What of the client library's own log is let through.

Its debug messages hold requests whole, payloads and passwords included, so they are
dropped whatever the level says. Its warnings repeat ten times a second while a broker
is away; each is let through every half minute, and we report the failure ourselves.
"""

from __future__ import annotations

import logging
from typing import Final

REPEAT_S: Final = 30.0

_LOGGERS: Final = (
    "aiokafka",
    "aiokafka.admin.client",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
)


class Quiet(logging.Filter):
    """Drops debug messages, and repeats of the same message."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is let through."""
        if record.levelno < logging.INFO:
            return False
        # The text before its arguments are filled in: the library has a few dozen.
        what = (record.name, str(record.msg))
        said_at = self._said.get(what)
        if said_at is not None and record.created - said_at < REPEAT_S:
            return False
        self._said[what] = record.created
        return True


_QUIET: Final = Quiet()


def quieten() -> None:
    """Install the filter; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_QUIET)
