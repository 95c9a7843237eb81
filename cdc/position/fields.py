"""Members of a stored record, by their JSON type: nothing is converted or guessed."""

from __future__ import annotations

from typing import Any


def text(value: object) -> str:
    """Return a text; raise TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def number(value: object) -> int:
    """Return a whole number; raise TypeError for anything else, a truth value too."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def items(value: object) -> list[Any]:
    """Return a list; raise TypeError for anything else."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def texts_by_name(value: object) -> dict[str, str]:
    """Return an object whose members are texts; raise TypeError for anything else."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return {name: text(member) for name, member in value.items()}
