"""Which rows may be unpublished: samples of the server's transactions become a horizon.

A sample's ``xmin`` is the horizon once everything below the sample's LSN is
acknowledged: each older transaction has committed below that LSN, and been delivered or
was never ours. It is a bound of what to look at after a loss, not a list of what is
missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cdc.position.record import Position, Sample
    from slots.lsn import Lsn

MAX_SAMPLES: Final = 24
"""A record is written often, so the list is short: fine near its end, coarse before."""


def sampled(position: Position, sample: Sample) -> Position:
    """Return the position with one more sample; one of a moment before is left out."""
    if position.samples and sample.lsn <= position.samples[-1].lsn:
        return position
    samples = (*position.samples, sample)
    if len(samples) > MAX_SAMPLES:
        half = len(samples) // 2
        samples = samples[:half:2] + samples[half:]
    return replace(position, samples=samples)


def acknowledged(position: Position, end_lsn: Lsn) -> Position:
    """Return the position moved to ``end_lsn``, with what follows from that."""
    horizon = position.horizon
    for sample in position.samples:
        if sample.lsn <= end_lsn and (horizon is None or sample.xmin > horizon):
            horizon = sample.xmin
    overlap = position.overlap
    if overlap is not None and end_lsn >= overlap.until:
        overlap = None
    return replace(position, end_lsn=end_lsn, horizon=horizon, overlap=overlap)


def horizon_at(position: Position, lsn: Lsn) -> int | None:
    """Return a horizon for everything that committed at ``lsn`` or later.

    None when no sample is old enough. Of the stored horizon nothing is known but that
    it belongs to the stored position.
    """
    known = [sample.xmin for sample in position.samples if sample.lsn <= lsn]
    if lsn >= position.end_lsn and position.horizon is not None:
        known.append(position.horizon)
    return max(known, default=None)


def read_back_from_ms(position: Position, horizon: int) -> int:
    """Return a time before which no transaction at or above ``horizon`` had begun.

    Milliseconds since 1970 by the server's clock; 0 when no sample is old enough.
    """
    times = [sample.at_ms for sample in position.samples if sample.xmax <= horizon]
    return max(times, default=0)
