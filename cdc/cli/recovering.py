"""``cdc resnapshot``, ``adopt``, ``replay``, ``prune``: an operator's commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cdc.cli.starting import run_to_end, set_up_logs_of, settings_in_force
from cdc.errors import SettingsError
from slots.lsn import Lsn

_Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog="Example: cdc adopt --accept-gap 16/B374D848\n\n"
        "The message of a relay that has stopped names the position."
    )(adopt)


def adopt(
    accept_gap: Annotated[
        str | None,
        typer.Option(
            "--accept-gap",
            metavar="LSN",
            help="Go on there, on the same cluster; what lies before is given up.",
        ),
    ] = None,
    yes: _Yes = False,  # noqa: FBT002 - a flag
) -> None:
    """Take another cluster as it is and raise the epoch, or go on behind a gap."""
    from cdc.app import adopt_server, relay_name  # noqa: PLC0415

    settings = settings_in_force()
    lsn = None if accept_gap is None else _lsn(accept_gap)
    what = f"Give up what lies before {lsn}?" if lsn else "Begin a new epoch here?"
    ask(f"Relay {relay_name(settings)}: {what}", yes=yes)
    set_up_logs_of(settings, only_errors=True)
    for line in run_to_end(adopt_server(settings, lsn)):
        typer.echo(line)


def ask(question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere the command's own words are the answer."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _lsn(text: str) -> Lsn:
    try:
        return Lsn.parse(text)
    except ValueError as exc:
        raise SettingsError(
            f"--accept-gap: {exc}", hint="the relay's message names the position"
        ) from None
