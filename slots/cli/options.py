"""Options that several commands share, and how they become targets and limits."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import SecretStr

from slots.connect import Target
from slots.errors import SlotError
from slots.state import LIMIT_NAMES, Limits
from slots.state.units import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX: Final = "SLOTS_"
_OTHER_VARIABLES: Final = ("SLOTS_NOTIFY", "SLOTS_LISTEN")
_KUBERNETES: Final = re.compile(r"SLOTS_(\w+_)?(SERVICE_HOST|SERVICE_PORT\w*|PORT\w*)")
"""What a cluster puts into every container for a service whose name begins so."""


class UsageMistake(SlotError):
    """The command line or a SLOTS_ variable is wrong."""

    hint = "see --help"


Dsn = Annotated[
    str,
    typer.Option(
        "--dsn",
        envvar="CDC_POSTGRES__DSN",
        show_default=False,
        help="The server: a URI or key=value pairs; without it libpq's PG* variables.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="CDC_POSTGRES__PASSWORD_FILE",
        help="Read the password from there at every connect.",
    ),
]
PasswordCommand = Annotated[
    str | None,
    typer.Option(
        "--password-command",
        envvar="CDC_POSTGRES__PASSWORD_COMMAND",
        help="Run this at every connect; it prints the password.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
LimitTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=WARNING[:CRITICAL]",
        help="From when on something is bad; again for another. NAME is one of "
        + ", ".join(LIMIT_NAMES)
        + "; or a variable each: SLOTS_LAG=1GB:5GB.",
    ),
]
Name = Annotated[str, typer.Argument(help="Name of the slot.")]
Names = Annotated[
    list[str] | None, typer.Argument(help="Names of slots; none is all of them.")
]


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server; it takes them as its first argument.

    Typer reads the signature: the ``target`` in it becomes three options.
    """
    # The commands name Target for type checkers only.
    inner = inspect.signature(command, eval_str=True, locals={"Target": Target})
    own = list(inner.parameters.values())[1:]
    added = [
        _option("dsn", Dsn, ""),
        _option("password_file", PasswordFile, None),
        _option("password_command", PasswordCommand, None),
    ]

    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        dsn: str,
        password_file: Path | None,
        password_command: str | None,
        **options: Any,
    ) -> None:
        target = Target(
            dsn=SecretStr(dsn),
            password_file=password_file,
            password_command=password_command,
            application_name="walferry slots",
        )
        command(target, *arguments, **options)

    parameters = [*own, *added]
    wrapped.__signature__ = inner.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def read_limits(
    texts: list[str] | None, defaults: dict[str, str] | None = None
) -> Limits:
    """Read limits: the defaults given, over them SLOTS_ variables, over them options.

    Raises:
        UsageMistake: one of them is none.

    """
    _refuse_unknown_variables()
    given = dict(defaults or {})
    for name in LIMIT_NAMES:
        if value := os.environ.get(_PREFIX + name.upper()):
            given[name] = value
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageMistake(f"--limit {text}: write NAME=WARNING:CRITICAL")
        given[name.strip().replace("-", "_")] = value.strip()
    try:
        return Limits.of(given)
    except ValueError as exc:
        raise UsageMistake(f"limit {exc}") from None


def read_seconds(text: str, option: str) -> float:
    """Read a time of an option.

    Raises:
        UsageMistake: it is none.

    """
    try:
        return parse_seconds(text)
    except ValueError as exc:
        raise UsageMistake(f"{option}: {exc}") from None


def _refuse_unknown_variables() -> None:
    known = [_PREFIX + name.upper() for name in LIMIT_NAMES]
    known += _OTHER_VARIABLES
    for name in os.environ:
        is_ours = name.startswith(_PREFIX) and not _KUBERNETES.fullmatch(name)
        if is_ours and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise UsageMistake(f"there is no variable {name}{meant}")


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
