"""``cdc resnapshot``, ``adopt``, ``replay``, ``prune``: an operator's commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cdc.cli.showing import Json, print_json
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
    app.command(
        epilog="Example: cdc resnapshot --dry-run, then cdc resnapshot --yes\n\n"
        "Rows that the topics hold already are not published again; what is published"
        " carries the header cdc.replay and the id it always had."
    )(resnapshot)
    app.command(epilog="Example: cdc replay --since 2026-01-31T12:00Z --key order-17")(
        replay
    )
    app.command(
        epilog="Example: cdc prune --keep 7d --dry-run\n\n"
        "Keep more than the longest outage you want to survive: a resnapshot can"
        " publish only what is in the table."
    )(prune)


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


def resnapshot(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|ID|LSN", help="Look at rows from there on, not the horizon."
        ),
    ] = None,
    every: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--all", help="Look at every row.")
    ] = False,
    dry_run: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--dry-run", help="Count, and change nothing.")
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option("--wait", help="Seconds for open transactions to end.", min=1),
    ] = 60.0,
    yes: _Yes = False,  # noqa: FBT002 - a flag
    as_json: Json = False,  # noqa: FBT002 - a flag
) -> None:
    """Make a lost slot anew and publish the rows that may have been missed."""
    from cdc.app import relay_name  # noqa: PLC0415
    from cdc.app.recovery import report_lines, resnapshot_once  # noqa: PLC0415
    from cdc.cli.progress import shown  # noqa: PLC0415
    from cdc.resnapshot import Request  # noqa: PLC0415

    if since is not None and every:
        raise SettingsError("--since and --all: one of them")
    settings = settings_in_force()
    told = yes
    if not dry_run and not yes and sys.stdin.isatty():
        name = settings.slot.name
        question = f"Relay {relay_name(settings)}: drop slot {name} and make it anew?"
        told = typer.confirm(question, abort=True)
    set_up_logs_of(settings)
    bounds = {"all": ""} if every else {} if since is None else {"since": since}
    request = Request(
        bounds=bounds, may_drop=told, dry_run=dry_run, slot_timeout_s=wait_s
    )
    with shown("resnapshot") as tell:
        report = run_to_end(resnapshot_once(settings, request, tell))
    if as_json:
        print_json(report.facts())
        return
    for line in report_lines(report):
        typer.echo(line)


def replay(
    since: Annotated[
        str | None, typer.Option(metavar="TIME|ID|LSN", help="From there on.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME|ID", help="Up to there.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Events with this key only.")] = None,
    dry_run: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--dry-run", help="Count, and publish nothing.")
    ] = False,
    yes: _Yes = False,  # noqa: FBT002 - a flag
    as_json: Json = False,  # noqa: FBT002 - a flag
) -> None:
    """Publish rows of the table again, marked cdc.replay; the slot is not touched."""
    from cdc.app.recovery import replay_once  # noqa: PLC0415
    from cdc.cli.progress import shown  # noqa: PLC0415
    from cdc.replay import Wish  # noqa: PLC0415

    if since is until is key is None:
        raise SettingsError(
            "replay needs --since, --until or --key",
            hint="for every row: --since 1970-01-01",
        )
    settings = settings_in_force()
    if not dry_run:
        ask("Publish these rows again?", yes=yes)
    set_up_logs_of(settings)
    wish = Wish(since=since, until=until, key=key, dry_run=dry_run)
    with shown("replay") as tell:
        run_id, progress = run_to_end(replay_once(settings, wish, tell))
    if as_json:
        facts = {"published": progress.published, "bytes": progress.size_bytes}
        print_json({"run_id": run_id, "dry_run": dry_run} | facts)
        return
    verb = "would be published" if dry_run else "published"
    typer.echo(f"{progress.published} rows {verb}, {progress.size_bytes} bytes")
    if not dry_run:
        typer.echo(f"each carries cdc.replay: {run_id}")


def prune(
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Like 12h or 7d; CDC_RETENTION__KEEP_S if not given."
        ),
    ] = None,
    dry_run: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--dry-run", help="Count, and delete nothing.")
    ] = False,
    yes: _Yes = False,  # noqa: FBT002 - a flag
    as_json: Json = False,  # noqa: FBT002 - a flag
) -> None:
    """Delete outbox rows that are acknowledged and older than the retention."""
    from cdc.app import prune_once  # noqa: PLC0415

    settings = settings_in_force()
    keep_s = settings.retention.keep_s if keep is None else _seconds(keep)
    if keep_s is None:
        raise SettingsError(
            "how long rows are kept is not said",
            hint="cdc prune --keep 7d, or CDC_RETENTION__KEEP_S",
        )
    if not dry_run:
        ask(f"Delete acknowledged rows older than {keep_s:g} s?", yes=yes)
    set_up_logs_of(settings, only_errors=True)
    done = run_to_end(prune_once(settings, keep_s, dry_run=dry_run))
    if as_json:
        print_json([one.facts() for one in done])
        return
    for one in done:
        for line in one.lines(dry_run=dry_run):
            typer.echo(line)


def _seconds(text: str) -> float:
    from slots.state.units import parse_seconds  # noqa: PLC0415

    try:
        return parse_seconds(text)
    except ValueError as exc:
        raise SettingsError(f"--keep: {exc}") from None


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
