"""walferry as its users run it: a process of its own, told by its environment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.process import Child, Command, fresh_folder, python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.race import Lane

_INIT_DEADLINE_S: Final = 60.0


class Walferry:
    """``cdc run``, into Kafka with acks=all.

    Args:
        name: what it is called in the results.
        settings: further ``CDC_`` variables.

    """

    writes_to_kafka = True

    def __init__(
        self, name: str = "walferry", settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._settings = dict(settings or {})

    def command(self, lane: Lane) -> Command:
        """Return the run that relays this lane."""
        settings = {
            "CDC_POSTGRES__DSN": lane.dsn,
            "CDC_NAME": lane.slot,
            "CDC_SLOT__NAME": lane.slot,
            "CDC_SLOT__PLUGIN": lane.plugin,
            "CDC_KAFKA__BOOTSTRAP_SERVERS": lane.bootstrap_servers,
            "CDC_OUTBOX__TOPIC": f"{lane.prefix}.{{aggregatetype}}",
            **self._settings,
        }
        return cdc(["run"], settings)


def cdc(arguments: list[str], settings: Mapping[str, str]) -> Command:
    """Return a run of ``cdc`` that knows these settings only."""
    return python("-m", "cdc.cli", *arguments, variables=settings)


async def init(dsn: str, bootstrap_servers: str, *, slot: str) -> None:
    """Make outbox, publication, slot and whatever the broker needs.

    Raises:
        RuntimeError: with the last words of ``cdc init``.

    """
    settings = {
        "CDC_POSTGRES__DSN": dsn,
        "CDC_SLOT__NAME": slot,
        "CDC_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
    }
    with fresh_folder() as folder:
        child = Child(cdc(["init"], settings), folder)
        if await asyncio.to_thread(child.wait, _INIT_DEADLINE_S):
            raise RuntimeError(f"cdc init failed: {child.last_words()}")
