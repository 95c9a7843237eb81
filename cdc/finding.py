"""What a check found: one line each, with the statement that mends it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Status(enum.StrEnum):
    """How a requirement stands."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One requirement, tested.

    Attributes:
        name: stable and short, for machines: ``postgres.wal_level``.
        status: whether it is met.
        detail: what was seen, one line, no secret.
        remedy: the statement, setting or command that mends it; empty when ok.

    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    """Return a requirement that is met."""
    return Finding(name=name, status=Status.OK, detail=detail)


def warning(name: str, detail: str, remedy: str) -> Finding:
    """Return something that works now and may hurt later."""
    return Finding(name=name, status=Status.WARNING, detail=detail, remedy=remedy)


def failure(name: str, detail: str, remedy: str) -> Finding:
    """Return a requirement that is not met; the relay does not start."""
    return Finding(name=name, status=Status.FAILURE, detail=detail, remedy=remedy)
