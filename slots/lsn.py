"""Positions in the write-ahead log: parse, print, order, distance.

An LSN is never a bare string here; text appears only at the borders.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Self

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_MAX = (1 << 64) - 1


class Lsn(int):
    """A byte position in the write-ahead log, an unsigned 64-bit number.

    Orders and subtracts like the number it is (a difference is bytes of WAL) and
    prints like Postgres' ``pg_lsn``: two hexadecimal halves, ``16/B374D848``.
    """

    __slots__ = ()

    def __new__(cls, value: int = 0) -> Self:
        """Take a position as a number; raise ValueError outside 64 bits."""
        if not 0 <= value <= _MAX:
            raise ValueError(f"an LSN has 64 bits, {value} does not fit")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``X/Y`` as Postgres prints it; raise ValueError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not an LSN: {text!r} (expected hex halves, 0/1A2B3C)")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"


ZERO = Lsn(0)

lsn_of_wire = partial(int.__new__, Lsn)
"""Makes an Lsn of an unsigned 64-bit number that a struct has read, without a look."""
