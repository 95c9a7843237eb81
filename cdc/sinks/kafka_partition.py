"""Which partition a key belongs to: the same one the Java client chooses.

Source: ``murmur2`` of Kafka's ``Utils``, over little-endian 32-bit words with seed
0x9747b28c; the partition is ``(hash & 0x7fffffff) mod partitions``, whichever leaders
happen to be available.
"""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_POSITIVE: Final = 0x7FFFFFFF

MAX_REMEMBERED: Final = 65_536
"""Keys whose hash is kept: UUIDs take some 12 MiB."""

LONGEST_REMEMBERED_BYTES: Final = 128
"""A longer key is hashed each time, or long keys would make the memory unbounded."""


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of the bytes, as an unsigned 32-bit number."""
    # The constants are written out: a global look-up a word doubles the cost.
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        k = word * 0x5BD1E995 & 0xFFFFFFFF
        h = (h * 0x5BD1E995 ^ (k ^ k >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if length & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        h = (h ^ rest) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15


class KeyHashes:
    """Remembers hashes of keys: hashing costs microseconds, a look-up does not."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._hashes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def partition(self, key: bytes, partitions: int) -> int:
        """Return the partition of a key among so many."""
        positive = self._hashes.get(key)
        if positive is None:
            positive = murmur2(key) & _POSITIVE
            if len(key) <= LONGEST_REMEMBERED_BYTES:
                if len(self._hashes) >= self._limit:
                    # Keys in use come back at once; a clever order would cost more.
                    self._hashes.clear()
                self._hashes[key] = positive
        return positive % partitions
