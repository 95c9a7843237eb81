"""Numbers out of numbers: medians, percentiles, ratios pair by pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle of several runs, and how far they lay apart."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """How long something took, in seconds."""

    count: int
    p50: float
    p99: float
    longest: float


def spread(values: Sequence[float]) -> Spread:
    """Return median and extremes; raise ValueError when there are no values."""
    if not values:
        raise ValueError("the spread of no values")
    return Spread(low=min(values), median=median(values), high=max(values))


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Return p50, p99 and the longest; raise ValueError when there are no values."""
    if not seconds:
        raise ValueError("percentiles of no values")
    ordered = sorted(seconds)
    return Percentiles(
        count=len(ordered),
        p50=nearest_rank(ordered, 50),
        p99=nearest_rank(ordered, 99),
        longest=ordered[-1],
    )


def nearest_rank(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not exceed."""
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread | None:
    """Return ours divided by theirs, run by run; None where no pair is whole.

    The two of a pair ran one after the other, so that a machine which grows slower in
    the meantime slows both. Runs without a partner are left out.
    """
    pairs = zip(ours, theirs, strict=False)
    ratios = [mine / other for mine, other in pairs if other > 0]
    return spread(ratios) if ratios else None


def rates(
    points: Sequence[tuple[float, float]], window_s: float
) -> list[tuple[float, float]]:
    """Turn (seconds, total so far) into (seconds, growth per second).

    Each rate is of at least ``window_s`` seconds and stands at the middle of them; what
    is left over at the end is left out.
    """
    found = []
    windows = iter(points)
    since, total = next(windows, (0.0, 0.0))
    for seconds, reached in windows:
        if seconds - since >= window_s:
            rate = (reached - total) / (seconds - since)
            found.append(((since + seconds) / 2, rate))
            since, total = seconds, reached
    return found


def thinned(points: Sequence[T], at_most: int) -> list[T]:
    """Return about so many of the points, evenly taken, first and last among them."""
    if len(points) <= at_most:
        return list(points)
    step = (len(points) - 1) / (at_most - 1)
    return [points[round(number * step)] for number in range(at_most)]
