"""What is done about an error is a matter of its class alone."""

from __future__ import annotations

import pytest

from cdc.errors import (
    DecodeError,
    Disposition,
    FirstStart,
    OperatorNeeded,
    SinkDenied,
    SinkUnavailable,
    disposition,
)
from slots.errors import AuthenticationRefused, ServerUnavailable


@pytest.mark.parametrize(
    ("error", "at_start", "later"),
    [
        (FirstStart(), Disposition.RESNAPSHOT, Disposition.RESNAPSHOT),
        (SinkUnavailable(), Disposition.RETRY, Disposition.RETRY),
        (ServerUnavailable("away"), Disposition.RETRY, Disposition.RETRY),
        (SinkDenied(), Disposition.STOP, Disposition.RETRY),
        (AuthenticationRefused("no"), Disposition.STOP, Disposition.RETRY),
        (OperatorNeeded(), Disposition.STOP, Disposition.STOP),
        (DecodeError(), Disposition.STOP, Disposition.STOP),
        (KeyError("unknown"), Disposition.STOP, Disposition.STOP),
    ],
)
def test_every_kind_of_error_has_its_answer(
    error: Exception, at_start: Disposition, later: Disposition
) -> None:
    assert disposition(error, has_streamed=False) is at_start
    assert disposition(error, has_streamed=True) is later
