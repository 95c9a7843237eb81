from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cdc.sinks.kafka_log import REPEAT_S, Quiet, quieten

if TYPE_CHECKING:
    import pytest


def record(
    text: str, *, at_s: float, level: int = logging.WARNING
) -> logging.LogRecord:
    made = logging.LogRecord("aiokafka", level, "", 0, text, ("x",), None)
    made.created = at_s
    return made


def test_a_message_passes_once_and_again_after_half_a_minute() -> None:
    quiet = Quiet()

    assert quiet.filter(record("gone %s", at_s=0))
    assert not quiet.filter(record("gone %s", at_s=REPEAT_S - 1))
    assert quiet.filter(record("other %s", at_s=REPEAT_S - 1))
    assert quiet.filter(record("gone %s", at_s=REPEAT_S))


def test_requests_are_not_logged_even_at_the_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They hold payloads, and passwords."""
    quieten()
    caplog.set_level(logging.DEBUG)

    for name in ("aiokafka", "aiokafka.conn", "aiokafka.producer.producer"):
        logging.getLogger(name).debug("Request: %s", "s3cr3t")

    assert "s3cr3t" not in caplog.text
