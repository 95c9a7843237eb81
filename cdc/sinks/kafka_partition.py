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


class KeyHashes(dict[bytes, int]):
    """Hashes of keys, without the sign; a key that is asked for is hashed once.

    Hashing costs microseconds, a look-up does not.

    Args:
        limit: so many are remembered.

    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        super().__init__()
        self._limit = limit

    def __missing__(self, key: bytes) -> int:
        """Return the hash of a key that is not remembered."""
        positive = murmur2(key) & _POSITIVE
        if len(key) <= LONGEST_REMEMBERED_BYTES:
            if len(self) >= self._limit:
                # Keys in use come back at once; a clever order would cost more.
                self.clear()
            self[key] = positive
        return positive
