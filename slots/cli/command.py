"""The command line: arguments in, exit code out.

An error is one line on stderr that names the remedy. Exit codes: 0 done, 1 it could not
be done, 2 usage; ``slots check`` has its own, those of monitoring plugins.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from slots.cli import changing, probing, showing, watching
from slots.cli.options import UsageMistake
from slots.errors import SlotError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="slots",
    help="See replication slots, know why they hold WAL, be told before it hurts.\n\n"
    "Works for any slot on Postgres 14 to 18. The server is named by --dsn,"
    " CDC_POSTGRES__DSN or libpq's PG* variables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _module in (showing, probing, watching, changing):
    _module.add_to(app)


def main() -> None:
    """Run the command; the only place where an error becomes an exit code."""
    sys.exit(run(sys.argv[1:]))


@app.callback()
def _options(
    debug: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--debug", help="Show tracebacks.")
    ] = False,
    version: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--version", help="Show the version.", is_eager=True)
    ] = False,
) -> None:
    del debug, version  # both are looked for in run(), where they matter


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if list(arguments[:1]) == ["--version"]:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely asked

        typer.echo(f"walferry {version('walferry')}")
        return 0
    given = list(arguments) or ["--help"]
    is_debugging = given[0] == "--debug"
    is_probe = probing.COMMAND in given[: 2 if is_debugging else 1]
    try:
        code = app(args=given, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return FAILED
    except typer.Abort:
        sys.stderr.write("slots: nothing was done\n")
        return FAILED
    except Exception as exc:
        if is_debugging:
            raise
        return _tell(exc, is_probe=is_probe)


def _tell(exc: Exception, *, is_probe: bool) -> int:
    """Say what is wrong in one line; a probe says it on stdout, in its own way."""
    text, code = _in_words(exc)
    if is_probe:
        typer.echo(f"{probing.TITLE} UNKNOWN - {text}")
        return probing.UNKNOWN
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write(f"slots: {text}\n")
    return code


def _in_words(exc: Exception) -> tuple[str, int]:
    if isinstance(exc, SlotError):
        hint = f"; {exc.hint}" if exc.hint else ""
        code = USAGE if isinstance(exc, UsageMistake) else FAILED
        return f"{_line(exc)}{hint}", code
    # Typer's own mistakes of usage have no public class.
    describe = getattr(exc, "format_message", None)
    if callable(describe):
        return f"{' '.join(str(describe()).split())} See --help.", USAGE
    return f"a bug: {type(exc).__name__}; `slots --debug ...` shows where", FAILED


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split())
