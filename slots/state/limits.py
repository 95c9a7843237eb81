"""From when on a number is worth a warning, and from when on it is critical."""

from __future__ import annotations

import difflib
import enum
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from slots.state.units import (
    GB,
    HOUR_S,
    MINUTE_S,
    parse_bytes,
    parse_count,
    parse_seconds,
    parse_share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

CLEAR_MARGIN: Final = 0.1
"""A level once reached is kept until the number is this much on the good side of its
limit, or an alarm would come and go with every poll around the limit."""

ON: Final = "on"
OFF: Final = "off"
_SWITCH: Final = {ON: True, OFF: False}


class Level(enum.IntEnum):
    """How bad it is."""

    OK = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        """The level in lower case, as labels and JSON have it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit for a warning and one for critical; None is never.

    Attributes:
        falls: small numbers are the bad ones (time left).

    """

    warning: float | None = None
    critical: float | None = None
    falls: bool = False

    def level(self, value: float | None, was: Level = Level.OK) -> Level:
        """Judge a number; one that is not known is not judged bad.

        Args:
            value: the number.
            was: the level it had before, which it leaves with a margin only.

        """
        if value is None:
            return Level.OK
        for level, limit in (
            (Level.CRITICAL, self.critical),
            (Level.WARNING, self.warning),
        ):
            if limit is not None and self._reaches(value, limit, held=was >= level):
                return level
        return Level.OK

    def _reaches(self, value: float, limit: float, *, held: bool) -> bool:
        margin = CLEAR_MARGIN if held else 0.0
        if self.falls:
            return value <= limit * (1 + margin)
        return value >= limit * (1 - margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a slot is worth a word; the names are those of the settings.

    Attributes:
        retained: WAL kept for the slot, in bytes; off unless somebody asks.
        lag: WAL its consumer has not confirmed, in bytes.
        budget: share used of what the slot may retain.
        time_to_loss: seconds until the budget is used up at the present rate.
        transaction_gap: WAL kept for open write transactions, in bytes.
        transaction_age: seconds the oldest of them is open, where a slot waits for it.
        inactive: seconds without a consumer.
        no_progress: seconds in which a consumer that is behind confirmed nothing.
        xmin_age: transactions since the oldest row version kept for the slot.
        slot_count: share used of max_replication_slots.
        disk: bytes of WAL the disk can take for a slot; the budget where the server has
            no max_slot_wal_keep_size.
        no_wal_limit: whether a server without max_slot_wal_keep_size is worth a
            warning.

    """

    retained: Threshold = Threshold()
    lag: Threshold = Threshold(1 * GB, 5 * GB)
    budget: Threshold = Threshold(0.5, 0.8)
    time_to_loss: Threshold = Threshold(6 * HOUR_S, 1 * HOUR_S, falls=True)
    transaction_gap: Threshold = Threshold(4 * GB)
    transaction_age: Threshold = Threshold(30 * MINUTE_S)
    inactive: Threshold = Threshold(5 * MINUTE_S, 30 * MINUTE_S)
    no_progress: Threshold = Threshold(5 * MINUTE_S, 30 * MINUTE_S)
    xmin_age: Threshold = Threshold(10_000_000, 100_000_000)
    slot_count: Threshold = Threshold(0.8, 1.0)
    disk: int | None = None
    no_wal_limit: bool = True

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Self:
        """Read limits as people write them over the defaults.

        A threshold is ``WARNING:CRITICAL``, ``WARNING``, ``:CRITICAL`` or ``off``; the
        disk is a size or ``off``, no_wal_limit ``on`` or ``off``.

        Raises:
            ValueError: an unknown name, or a text that is no threshold; one line.

        """
        limits = cls()
        for name, text in texts.items():
            limits = replace(limits, **{name: _read(name, text, limits)})
        return limits


LIMIT_NAMES: Final = tuple(field.name for field in fields(Limits))
_PARSERS: Final[Mapping[str, Callable[[str], float]]] = {
    "retained": parse_bytes,
    "lag": parse_bytes,
    "budget": parse_share,
    "time_to_loss": parse_seconds,
    "transaction_gap": parse_bytes,
    "transaction_age": parse_seconds,
    "inactive": parse_seconds,
    "no_progress": parse_seconds,
    "xmin_age": parse_count,
    "slot_count": parse_share,
}


def _read(name: str, text: str, limits: Limits) -> Any:
    if name not in LIMIT_NAMES:
        near = difflib.get_close_matches(name, LIMIT_NAMES, n=1)
        meant = f"did you mean {near[0]}?" if near else ", ".join(LIMIT_NAMES)
        raise ValueError(f"there is no limit {name!r}: {meant}")
    try:
        if name == "disk":
            return None if text == OFF else round(parse_bytes(text))
        if name == "no_wal_limit":
            return _SWITCH[text]
        return _threshold(name, text, falls=getattr(limits, name).falls)
    except KeyError:
        raise ValueError(f"{name}: {text!r} is neither {ON} nor {OFF}") from None
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None


def _threshold(name: str, text: str, *, falls: bool) -> Threshold:
    if text == OFF:
        return Threshold(falls=falls)
    parse = _PARSERS[name]
    warning, _, critical = text.partition(":")
    threshold = Threshold(
        parse(warning) if warning else None,
        parse(critical) if critical else None,
        falls=falls,
    )
    return _in_order(threshold)


def _in_order(threshold: Threshold) -> Threshold:
    warning, critical = threshold.warning, threshold.critical
    if warning is None and critical is None:
        raise ValueError(f"write WARNING:CRITICAL, or {OFF}")
    if warning is not None and critical is not None:
        is_wrong = warning < critical if threshold.falls else warning > critical
        if is_wrong:
            raise ValueError("the warning must come before critical")
    return threshold
