"""What the relay leaves out, said once a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from cdc.outbox import Binding

_log = structlog.get_logger("cdc.relay")


class Remarks:
    """Remembers what has been said."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def on_change(self, kind: str) -> None:
        """Say that a change of an outbox table is no insert."""
        self._once(
            kind,
            "an outbox relay publishes inserts only; such changes are counted and"
            " left out",
        )

    def on_rows(self, binding: Binding) -> None:
        """Say what is peculiar about rows, if anything is."""
        if binding.forged_headers:
            self._once(
                "reserved_header",
                "a row's headers column sets id, type or cdc.*; left out",
            )
        if binding.keyless:
            self._once(
                "no_key",
                "an event has no key: such events have no order among themselves",
            )

    def _once(self, what: str, meaning: str) -> None:
        if what not in self._said:
            self._said.add(what)
            _log.warning("remark", what=what, meaning=meaning)
