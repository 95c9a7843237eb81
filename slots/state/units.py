"""Bytes, shares, times and counts: as people write them, and as they read them.

Sizes are Postgres' own: a kB has 1024 bytes, ``10GB`` is what it is in postgresql.conf.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KB: Final = 1 << 10
MB: Final = 1 << 20
GB: Final = 1 << 30
TB: Final = 1 << 40

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86_400

_SIZES: Final = {"": 1, "b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": TB} | {
    "k": KB, "m": MB, "g": GB, "t": TB, "kib": KB, "mib": MB, "gib": GB, "tib": TB,
}  # fmt: skip
_TIMES: Final = {"": 1, "s": 1, "min": MINUTE_S, "h": HOUR_S, "d": DAY_S, "m": MINUTE_S}
_COUNTS: Final = {"": 1, "k": 1000, "m": 1_000_000}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_MANY: Final = 100
_HUNDRED_PER_CENT: Final = 100.0


def parse_bytes(text: str) -> int:
    """Read ``10GB``; a bare number is bytes; raise ValueError for anything else."""
    return round(_parse(text, _SIZES, "a size like 500MB or 10GB"))


def parse_seconds(text: str) -> float:
    """Read ``90s``, ``5min``, ``6h``; a bare number is seconds; or ValueError."""
    return _parse(text, _TIMES, "a time like 90s, 5min or 6h")


def parse_share(text: str) -> float:
    """Read ``80%`` or ``0.8`` as 0.8; raise ValueError for anything else."""
    stripped = text.strip()
    share = _parse(stripped.removesuffix("%"), {"": 1}, "a share like 80%")
    return share / _HUNDRED_PER_CENT if stripped.endswith("%") else share


def parse_count(text: str) -> float:
    """Read ``1000`` or ``10M``; raise ValueError for anything else."""
    return _parse(text, _COUNTS, "a number like 10M")


def show_bytes(size: float | None) -> str:
    """Print a size with three digits or so: ``1.21 GB``."""
    if size is None:
        return "-"
    for unit, name in ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB")):
        if abs(size) >= unit:
            value = size / unit
            return (
                f"{value:.0f} {name}" if abs(value) >= _MANY else f"{value:.3g} {name}"
            )
    return f"{size:.0f} B"


def show_rate(rate: float | None) -> str:
    """Print bytes a second."""
    return "-" if rate is None else f"{show_bytes(rate)}/s"


def show_seconds(seconds: float | None) -> str:
    """Print a time in its two largest units: ``3 h 20 min``."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        pairs = (whole // MINUTE_S, "min", whole % MINUTE_S, "s")
    elif whole < DAY_S:
        pairs = (whole // HOUR_S, "h", whole % HOUR_S // MINUTE_S, "min")
    else:
        pairs = (whole // DAY_S, "d", whole % DAY_S // HOUR_S, "h")
    large, large_name, small, small_name = pairs
    return f"{large} {large_name}" + (f" {small} {small_name}" if small else "")


def show_briefly(seconds: float | None) -> str:
    """Print a time in one unit, for a narrow table: ``74 s``, ``12 min``, ``3 d``."""
    if seconds is None:
        return "-"
    for unit, name in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def show_share(share: float | None) -> str:
    """Print a share in per cent."""
    return "-" if share is None else f"{share:.0%}"


def show_count(count: float | None) -> str:
    """Print a number: ``12.3M``."""
    if count is None:
        return "-"
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return f"{count:.0f}"


def _parse(text: str, units: Mapping[str, int], wanted: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    unit = None if match is None else units.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(f"{text.strip()!r} is not {wanted}")
    return float(match[1]) * unit
