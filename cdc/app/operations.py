"""What the commands beside ``cdc run`` do."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cdc.adoption import adopt
from cdc.app.parts import (
    constant_topics,
    retention_of,
    sink_of,
    source_of,
    store_of,
    target_of,
)
from cdc.claim import stored_position
from cdc.errors import CdcError, OperatorNeeded, RequirementMissing
from cdc.finding import Status, failure, ok
from cdc.position import Cause, SlotGone, agree
from cdc.recovery_plan import doubt_about
from cdc.requirements import check, init
from cdc.requirements.history import see
from cdc.retention import prune
from slots.catalog import get_slot
from slots.connect import connect
from slots.errors import SlotError

if TYPE_CHECKING:
    from cdc.finding import Finding
    from cdc.retention import TablePruned
    from cdc.settings import Settings
    from slots.lsn import Lsn


async def check_all(settings: Settings) -> list[Finding]:
    """Test every requirement of a run, each server tried once."""
    source = source_of(settings)
    findings = await check(source.target, source.wanted)
    of_sink = await sink_of(settings).check(constant_topics(settings))
    findings += of_sink
    if settings.sink == "kafka" and _is_away(of_sink):
        return findings  # the positions are kept there too: each server is tried once
    findings += await store_of(settings).check()
    if any(found.status is Status.FAILURE for found in findings):
        return findings  # what disagrees may be a consequence
    return [*findings, await _agreement(settings)]


async def _agreement(settings: Settings) -> Finding:
    """Tell whether the server agrees with what is stored, as the next start will."""
    name = "position.agreement"
    source, store = source_of(settings), store_of(settings)
    try:
        async with AsyncExitStack() as stack:
            connection = await connect(source.target)
            stack.push_async_callback(connection.close)
            line = await connect(source.target, replication=True)
            stack.push_async_callback(line.close)
            await stack.enter_async_context(store)
            known = await stored_position(store, source.name)
            if known is None:
                return ok(
                    name, f"no position of relay {source.name} yet: a first start"
                )
            agree(known, await see(connection, line, source.wanted))
    except (CdcError, SlotError) as exc:
        return failure(name, str(exc), exc.hint)
    return ok(name, f"relay {source.name} is at {known.end_lsn}; the server agrees")


def _is_away(findings: list[Finding]) -> bool:
    return any(
        found.status is Status.FAILURE and found.name == "kafka.broker"
        for found in findings
    )


async def make_source(settings: Settings) -> list[str]:
    """Make outbox table, publication, slot and position store; say what was made.

    A slot that is missing while a position is known is not made (rule 12), nor is one
    whose snapshot the first run is to publish.

    Raises:
        SlotGone: a position is known and the slot is gone.

    """
    source = source_of(settings)
    store = store_of(settings)
    done = await store.make()
    async with store, await connect(source.target) as connection:
        known = await stored_position(store, source.name)
        slot = await get_slot(connection, source.wanted.slot)
    if known is not None and slot is None:
        raise SlotGone(
            f"slot {source.wanted.slot} is gone, and relay {source.name} was at"
            f" {known.end_lsn}: a new slot would skip what was committed since",
            cause=Cause.DROPPED,
            position=known,
        )
    with_slot = slot is not None or settings.snapshot == "never"
    done += await init(target_of(settings), source.wanted, with_slot=with_slot)
    if not with_slot:
        done.append("the slot is left to `cdc run`, which publishes its snapshot")
    return done


async def adopt_server(settings: Settings, accept_gap: Lsn | None) -> list[str]:
    """Make the stored position agree with the server."""
    return await adopt(source_of(settings), store_of(settings), accept_gap=accept_gap)


async def prune_once(
    settings: Settings, keep_s: float, *, dry_run: bool
) -> list[TablePruned]:
    """Delete acknowledged rows older than ``keep_s`` seconds; say what was done.

    Raises:
        RequirementMissing: nothing is certainly acknowledged.
        OperatorNeeded: the server is not on the history that the position is of.

    """
    source, store = source_of(settings), store_of(settings)
    async with AsyncExitStack() as stack:
        connection = await connect(source.target)
        stack.push_async_callback(connection.close)
        line = await connect(source.target, replication=True)
        stack.push_async_callback(line.close)
        await stack.enter_async_context(store)
        known = await stored_position(store, source.name)
        if known is None or known.horizon is None:
            raise RequirementMissing(
                f"no horizon is stored for relay {source.name}: nothing is certainly"
                " acknowledged",
                hint="let the relay run for a while; with JSON lines on stdout nothing"
                " is stored",
            )
        seen = await see(connection, line, source.wanted)
        doubt = await doubt_about(connection, known, seen, source)
        if doubt:
            raise OperatorNeeded(f"{doubt}; nothing is deleted", hint="cdc check")
        return await prune(
            connection,
            source.wanted.tables,
            retention_of(settings, keep_s),
            horizon=known.horizon,
            dry_run=dry_run,
        )
