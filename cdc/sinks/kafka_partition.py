"""Which partition a key belongs to: the same one the Java client chooses.

Source: ``murmur2`` of Kafka's ``Utils``, over little-endian 32-bit words with seed
0x9747b28c; the partition is ``(hash & 0x7fffffff) mod partitions``, whichever leaders
happen to be available.
"""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

MAX_REMEMBERED: Final = 65_536
"""Keys whose hash is kept; at some 150 bytes each about 10 MiB."""


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of the bytes, as an unsigned 32-bit number."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK  # noqa: PLW2901 - the algorithm's own names
        h = (h * _M & _MASK) ^ ((k ^ k >> _R) * _M & _MASK)
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


class KeyHashes:
    """Remembers hashes of keys: hashing costs microseconds, a look-up does not."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._hashes: dict[bytes, int] = {}

    def partition(self, key: bytes, partitions: int) -> int:
        """Return the partition of a key among so many."""
        positive = self._hashes.get(key)
        if positive is None:
            if len(self._hashes) >= self._limit:
                self._hashes.clear()
            positive = self._hashes[key] = murmur2(key) & _POSITIVE
        return positive % partitions
