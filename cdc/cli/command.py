"""The ``cdc`` command.

Whatever is heavy is imported inside a command: ``cdc --help`` has to be quick. An error
is one line on stderr that names the remedy, and an exit code.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, NoReturn

import typer

from cdc.cli import recovering, relaying, starting
from cdc.errors import CdcError, exit_code
from slots.errors import SlotError

app = typer.Typer(
    name="cdc",
    help="Carry committed outbox rows from Postgres to a broker.\n\n"
    "Settings come from CDC_ variables, .env and cdc.toml; `cdc config` shows them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _module in (relaying, recovering):
    _module.add_to(app)


def main() -> None:
    """Run the command; the only place where an error becomes an exit code."""
    # A sink or a token provider of the user's own lies where the command is run.
    sys.path.append("")
    try:
        app()
    except Exception as exc:
        if starting.debugging["on"]:
            raise
        _fail(exc)


def _fail(exc: Exception) -> NoReturn:
    for line in _lines(exc):
        sys.stderr.write(f"cdc: {line}\n")
    sys.exit(int(exit_code(exc, has_streamed=False)))


def _lines(exc: Exception) -> list[str]:
    if isinstance(exc, CdcError | SlotError):
        hint = f"; {exc.hint}" if exc.hint else ""
        return [f"{line}{hint}" for line in str(exc).splitlines()]
    # Its text stays away: nobody has looked whether it holds a secret.
    where = traceback.extract_tb(exc.__traceback__)[-1]
    line = (
        f"{type(exc).__name__} at {where.filename}:{where.lineno} is a mistake of"
        " walferry's own; run it again as `cdc --debug ...` and report what it says"
    )
    return [line]


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback signature
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"walferry {version('walferry')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,
    version: Annotated[  # noqa: FBT002 - a flag
        bool,
        typer.Option(
            "--version",
            help="Show the version.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Take the options that every command has."""
    del version
    starting.debugging["on"] = debug
