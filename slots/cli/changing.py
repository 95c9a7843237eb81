"""``slots create``, ``drop``, ``advance`` and ``copy``.

Each says what it will do, to whom, and asks; ``--yes`` answers. Without a terminal and
without ``--yes`` nothing is done.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from slots import catalog
from slots.catalog.changes import terminate_consumer
from slots.cli.options import (
    Name,
    UsageMistake,
    Yes,
    on_server,
    read_seconds,
)
from slots.cli.readings import CONNECT_TIMEOUT_S, look_through, the_slot
from slots.connect import Target, address, connect
from slots.errors import SlotBusy, SlotError
from slots.lsn import Lsn
from slots.state.causes import describe_blocker, describe_consumer
from slots.state.units import show_bytes

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from slots.state import Slot

_FREE_LOOKS: Final = 50
_FREE_POLL_S: Final = 0.1
_LISTING_AFTER_S: Final = 1.0
_NOW: Final = "now"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("create", epilog="Example: slots create orders --plugin pgoutput")(
        on_server(_create)
    )
    app.command("drop", epilog="Example: slots drop orders_old")(on_server(_drop))
    app.command(
        "advance",
        epilog="Example: slots advance orders 16/B374D848   (or: now)",
    )(on_server(_advance))
    app.command("copy", epilog="Example: slots copy orders orders2 --plugin pgoutput")(
        on_server(_copy)
    )


def _create(  # noqa: PLR0913 - an argument an option
    target: Target,
    name: Name,
    *,
    plugin: Annotated[str, typer.Option(help="Output plugin.")] = "pgoutput",
    physical: Annotated[
        bool, typer.Option("--physical", help="For a standby or a backup instead.")
    ] = False,
    failover: Annotated[
        bool, typer.Option("--failover", help="Copied by standbys (17 and later).")
    ] = False,
    two_phase: Annotated[
        bool, typer.Option("--two-phase", help="Send prepared transactions early.")
    ] = False,
    timeout: Annotated[
        str,
        typer.Option(metavar="TIME", help="Give up after that long; 0 waits for ever."),
    ] = "60s",
    yes: Yes = False,
) -> None:
    """Make a slot; it waits for the write transactions that are open."""
    kind = "physical slot" if physical else f"logical slot for {plugin}"
    _confirm(
        f"Make {kind} {name} at {address(target)}? It keeps WAL from then on, whether"
        " somebody reads it or not.",
        yes=yes,
    )
    options = {"failover": failover, "two_phase": two_phase}
    position = asyncio.run(
        _make(
            target,
            name,
            plugin=None if physical else plugin,
            options=options,
            timeout_s=read_seconds(timeout, "--timeout"),
        )
    )
    typer.echo(f"slot {name} made, it begins at {position}")


def _drop(
    target: Target,
    name: Name,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="End the session that reads it first.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Drop a slot; refuses one that somebody reads, without --force."""
    asyncio.run(_drop_at(target, name, force=force, yes=yes))
    typer.echo(f"slot {name} dropped")


def _advance(
    target: Target,
    name: Name,
    position: Annotated[
        str, typer.Argument(metavar="LSN", help="Up to where, or `now`.")
    ],
    *,
    yes: Yes = False,
) -> None:
    """Move a slot forward: its consumer never gets what is passed over."""
    end = asyncio.run(_advance_at(target, name, position, yes=yes))
    typer.echo(f"slot {name} is at {end}")


def _copy(
    target: Target,
    source: Name,
    copy: Annotated[str, typer.Argument(help="Name of the copy.")],
    *,
    plugin: Annotated[
        str | None, typer.Option(help="Another output plugin for the copy.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Make another slot at the position of one: a move to another plugin loses none."""
    _confirm(
        f"Copy slot {source} to {copy} at {address(target)}? The copy keeps WAL, too.",
        yes=yes,
    )
    position = asyncio.run(_copy_at(target, source, copy, plugin))
    typer.echo(f"slot {copy} made, it begins at {position}")


async def _make(
    target: Target,
    name: str,
    *,
    plugin: str | None,
    options: dict[str, bool],
    timeout_s: float,
) -> Lsn:
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        told = asyncio.create_task(_tell_blockers(target), name="blockers")
        try:
            if plugin is None:
                return await catalog.create_slot(connection, name, plugin=None)
            return await catalog.create_slot(
                connection, name, plugin=plugin, timeout_s=timeout_s, **options
            )
        finally:
            # The list is a courtesy: what becomes of it is no matter.
            told.cancel()
            await asyncio.gather(told, return_exceptions=True)


async def _tell_blockers(target: Target) -> None:
    """After a moment, list what a creation waits for."""
    await asyncio.sleep(_LISTING_AFTER_S)
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        reading = await catalog.read(connection)
    for blocker in reading.blockers:
        typer.echo(f"waiting for {describe_blocker(blocker)}", err=True)


async def _drop_at(target: Target, name: str, *, force: bool, yes: bool) -> None:
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        reading, _ = await look_through(connection, sample_s=0)
        slot = the_slot(reading, name)
        if slot.active and not force:
            raise _busy(slot)
        lag = show_bytes(reading.lag_bytes(slot))
        reader = f", after its reader ({describe_consumer(slot)}) has been ended"
        _confirm(
            f"Drop {slot.slot_type} slot {name} at {address(target)}"
            f"{reader if slot.active else ''}? {lag} that its consumer has not"
            " confirmed can be lost to it for good.",
            yes=yes,
        )
        if slot.active:
            await terminate_consumer(connection, slot)
            await _until_free(connection, name)
        await catalog.drop_slot(connection, name)


async def _until_free(connection: AsyncConnection[TupleRow], name: str) -> None:
    for _ in range(_FREE_LOOKS):
        slot = await catalog.get_slot(connection, name)
        if slot is None or not slot.active:
            return
        await asyncio.sleep(_FREE_POLL_S)
    raise SlotBusy(
        f"slot {name} is still read from",
        hint="its consumer may have come back: stop it first",
    )


async def _advance_at(target: Target, name: str, to: str, *, yes: bool) -> Lsn:
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        reading, _ = await look_through(connection, sample_s=0)
        slot = the_slot(reading, name)
        if slot.active:
            raise _busy(slot)
        end = reading.server.wal_position or await catalog.wal_position(connection)
        position = end if to == _NOW else min(_lsn(to), end)
        if slot.position is not None and position <= slot.position:
            raise UsageMistake(
                f"slot {name} is at {slot.position} already",
                hint="a slot cannot go back",
            )
        given_up = show_bytes(position - (slot.position or position))
        _confirm(
            f"Move slot {name} at {address(target)} from {slot.position} to {position}?"
            f" {given_up} of changes are given up: its consumer never gets them.",
            yes=yes,
        )
        return await catalog.advance_slot(connection, name, position)


async def _copy_at(target: Target, source: str, copy: str, plugin: str | None) -> Lsn:
    async with await connect(target, timeout_s=CONNECT_TIMEOUT_S) as connection:
        return await catalog.copy_slot(connection, source, copy, plugin=plugin)


def _lsn(text: str) -> Lsn:
    try:
        return Lsn.parse(text)
    except ValueError as exc:
        raise UsageMistake(str(exc)) from None


def _busy(slot: Slot) -> SlotError:
    return SlotBusy(
        f"slot {slot.name} is in use by {describe_consumer(slot)}",
        hint="stop that consumer first, or (drop only) --force",
    )


def _confirm(question: str, *, yes: bool) -> None:
    """Ask; --yes answers, and a machine that cannot answer has to say it."""
    if yes:
        typer.echo(question.partition("?")[0], err=True)
        return
    if not sys.stdin.isatty():
        raise UsageMistake(
            f"not confirmed: {question.rstrip('.')}", hint="--yes does it"
        )
    typer.confirm(question, abort=True)
