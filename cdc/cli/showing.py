"""How a command prints its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from cdc.finding import Finding

Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON for machines.")
]


def as_text(value: Any) -> str:
    """Write a value as it may stand in ``.env``."""
    if value is None:
        return ""
    if isinstance(value, bool | dict):
        import orjson  # noqa: PLC0415

        return orjson.dumps(value).decode()
    return str(value)


def print_json(value: object) -> None:
    """Print JSON for machines."""
    import orjson  # noqa: PLC0415

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_finding(finding: Finding) -> None:
    """Print a finding as a line."""
    colours = {"ok": "green", "warning": "yellow", "failure": "red"}
    word = typer.style(f"{finding.status.value:<8}", fg=colours[finding.status.value])
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    typer.echo(f"{word} {finding.name:<24} {finding.detail}{remedy}")


def as_dict(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON has it."""
    return {
        "name": finding.name,
        "status": finding.status.value,
        "detail": finding.detail,
        "remedy": finding.remedy,
    }
