"""The ``cdc`` command.

Whatever is heavy is imported inside a command: ``cdc --help`` has to be quick. An error
is one line on stderr that names the remedy, and an exit code.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cdc.errors import CdcError, ExitCode, exit_code
from slots.errors import SlotError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cdc.finding import Finding
    from cdc.settings import Settings

app = typer.Typer(
    name="cdc",
    help="Carry committed outbox rows from Postgres to a broker.\n\n"
    "Settings come from CDC_ variables, .env and cdc.toml; `cdc config` shows them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_state = {"debug": False}

_Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def main() -> None:
    """Run the command; the only place where an error becomes an exit code."""
    # A sink or a token provider of the user's own lies where the command is run.
    sys.path.append("")
    try:
        app()
    except Exception as exc:
        if _state["debug"]:
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
    _state["debug"] = debug


@app.command(
    epilog="Example: CDC_POSTGRES__DSN=postgresql://app@db/shop cdc init --print"
)
def init(
    print_only: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--print", help="Show the SQL and do nothing.")
    ] = False,
    yes: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--yes", help="Do it without asking.")
    ] = False,
) -> None:
    """Make outbox table, publication and slot where they are missing."""
    from cdc.app import make_source, source_of  # noqa: PLC0415
    from cdc.requirements import init_statements  # noqa: PLC0415
    from slots.connect import address  # noqa: PLC0415

    settings = _settings()
    source = source_of(settings)
    if print_only:
        for statement in init_statements(source.wanted):
            typer.echo(f"{statement.rstrip(';')};")
        return
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Make what is missing at {address(source.target)}?", abort=True)
    _set_up_logs(settings, only_errors=True)
    done = _run(make_source(settings))
    for line in done or ["nothing was missing"]:
        typer.echo(line)


@app.command(epilog="Example: cdc check --json | jq '.[] | select(.status != \"ok\")'")
def check(as_json: _Json = False) -> None:  # noqa: FBT002 - a flag
    """Test everything a run needs, one line each, with the remedy."""
    from cdc.app import check_all  # noqa: PLC0415
    from cdc.finding import Status  # noqa: PLC0415

    settings = _settings()
    _set_up_logs(settings, only_errors=True)
    findings = _run(check_all(settings))
    if as_json:
        _print_json([_as_dict(finding) for finding in findings])
    else:
        for finding in findings:
            _print_finding(finding)
    if any(finding.status is Status.FAILURE for finding in findings):
        raise typer.Exit(int(ExitCode.REQUIREMENT))


@app.command(
    epilog="Example: CDC_KAFKA__BOOTSTRAP_SERVERS=kafka:9092 cdc run\n\n"
    "Exit codes: 0 clean, 2 settings, 3 a requirement is not met, 4 an operator has to"
    " decide, 5 stopped with events unacknowledged, 6 gave up waiting for the slot."
)
def run() -> None:
    """Carry rows until SIGTERM; a second signal stops at once."""
    from cdc.app import run_relay  # noqa: PLC0415

    settings = _settings()
    _set_up_logs(settings)
    raise typer.Exit(int(_run(run_relay(settings))))


@app.command(epilog="Example: cdc config --json")
def config(as_json: _Json = False) -> None:  # noqa: FBT002 - a flag
    """Show the settings in force, secrets masked."""
    from cdc.settings.masked import effective  # noqa: PLC0415

    shown = effective(_settings())
    if as_json:
        _print_json(shown)
        return
    for name, value in shown.items():
        typer.echo(f"{name}={_as_text(value)}")


@app.command(epilog="Example: cdc demo --sink jsonl")
def demo(
    sink: Annotated[
        str, typer.Option(help="kafka, or jsonl, which needs no broker.")
    ] = "kafka",
) -> None:
    """Run all of it on a Postgres and a Kafka of its own; ends by itself."""
    from cdc.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(sink))


def _settings() -> Settings:
    from cdc.settings import load_settings  # noqa: PLC0415

    return load_settings()


def _set_up_logs(settings: Settings, *, only_errors: bool = False) -> None:
    from cdc.app import relay_name  # noqa: PLC0415
    from cdc.app.logs import set_up_logs  # noqa: PLC0415

    quiet = only_errors and not _state["debug"]
    set_up_logs(settings, name=relay_name(settings), only_errors=quiet)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    import asyncio  # noqa: PLC0415

    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # there is none for this platform
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def _as_text(value: Any) -> str:
    """Write a value as it may stand in ``.env``."""
    if value is None:
        return ""
    if isinstance(value, bool | dict):
        import orjson  # noqa: PLC0415

        return orjson.dumps(value).decode()
    return str(value)


def _print_json(value: object) -> None:
    import orjson  # noqa: PLC0415

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _print_finding(finding: Finding) -> None:
    colours = {"ok": "green", "warning": "yellow", "failure": "red"}
    word = typer.style(f"{finding.status.value:<8}", fg=colours[finding.status.value])
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    typer.echo(f"{word} {finding.name:<24} {finding.detail}{remedy}")


def _as_dict(finding: Finding) -> dict[str, str]:
    return {
        "name": finding.name,
        "status": finding.status.value,
        "detail": finding.detail,
        "remedy": finding.remedy,
    }


if __name__ == "__main__":
    main()
