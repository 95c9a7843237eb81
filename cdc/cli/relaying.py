"""``cdc init``, ``check``, ``run``, ``config``, ``demo``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cdc.cli.showing import (
    Json,
    as_dict,
    as_text,
    print_finding,
    print_json,
)
from cdc.cli.starting import (
    look_for_cycles_rarely,
    run_to_end,
    set_up_logs_of,
    settings_in_force,
)
from cdc.errors import ExitCode


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog="Example: CDC_POSTGRES__DSN=postgresql://app@db/shop cdc init --print"
    )(init)
    app.command(
        epilog="Example: cdc check --json | jq '.[] | select(.status != \"ok\")'"
    )(check)
    app.command(
        epilog="Example: CDC_KAFKA__BOOTSTRAP_SERVERS=kafka:9092 cdc run\n\n"
        "Exit codes: 0 clean, 2 settings, 3 a requirement is not met, 4 an operator has"
        " to decide, 5 stopped with events unacknowledged, 6 gave up waiting for the"
        " slot."
    )(run)
    app.command(epilog="Example: cdc config --json")(config)
    app.command(epilog="Example: cdc demo --sink jsonl")(demo)


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

    settings = settings_in_force()
    source = source_of(settings)
    if print_only:
        for statement in init_statements(source.wanted):
            typer.echo(f"{statement.rstrip(';')};")
        return
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Make what is missing at {address(source.target)}?", abort=True)
    set_up_logs_of(settings, only_errors=True)
    done = run_to_end(make_source(settings))
    for line in done or ["nothing was missing"]:
        typer.echo(line)


def check(as_json: Json = False) -> None:  # noqa: FBT002 - a flag
    """Test everything a run needs, one line each, with the remedy."""
    from cdc.app import check_all  # noqa: PLC0415
    from cdc.finding import Status  # noqa: PLC0415

    settings = settings_in_force()
    set_up_logs_of(settings, only_errors=True)
    findings = run_to_end(check_all(settings))
    if as_json:
        print_json([as_dict(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding)
    if any(finding.status is Status.FAILURE for finding in findings):
        raise typer.Exit(int(ExitCode.REQUIREMENT))


def run() -> None:
    """Carry rows until SIGTERM; a second signal stops at once."""
    from cdc.app import run_relay  # noqa: PLC0415

    settings = settings_in_force()
    set_up_logs_of(settings)
    look_for_cycles_rarely()
    raise typer.Exit(int(run_to_end(run_relay(settings))))


def config(as_json: Json = False) -> None:  # noqa: FBT002 - a flag
    """Show the settings in force, secrets masked."""
    from cdc.settings.masked import effective  # noqa: PLC0415

    shown = effective(settings_in_force())
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        typer.echo(f"{name}={as_text(value)}")


def demo(
    sink: Annotated[
        str, typer.Option(help="kafka, or jsonl, which needs no broker.")
    ] = "kafka",
) -> None:
    """Run all of it on a Postgres and a Kafka of its own; ends by itself."""
    from cdc.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(sink))
