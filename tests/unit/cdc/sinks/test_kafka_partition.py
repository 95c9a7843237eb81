from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from cdc.sinks.kafka_partition import LONGEST_REMEMBERED_BYTES, KeyHashes, murmur2

# Field case D09: as int32, then the partition of 3, 10, 12 and 50.
TABLE = [
    (b"21", -973932308, (0, 0, 0, 40)),
    (b"foobar", -790332482, (0, 6, 6, 16)),
    (b"abc", 479470107, (0, 7, 3, 7)),
    (b"wu", 290249560, (1, 0, 4, 10)),
    (b"100:48069", 1009543857, (0, 7, 9, 7)),
    (b"a-little-bit-long-string", -985981536, (2, 2, 8, 12)),
    (b"order-1", 1221710326, (1, 6, 10, 26)),
    (bytes.fromhex("5a6fc3ab20f09f9880"), -486311413, (1, 5, 7, 35)),
    (b"", 275646681, (0, 1, 9, 31)),
]


@pytest.mark.parametrize(("key", "signed", "partitions"), TABLE)
def test_hash_and_partition_are_those_of_the_java_client(
    key: bytes, signed: int, partitions: tuple[int, ...]
) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    hashes = KeyHashes()
    for _ in range(2):
        assert tuple(hashes[key] % count for count in (3, 10, 12, 50)) == partitions


@given(st.binary(max_size=300))
def test_any_bytes_hash_as_the_client_library_hashes_them(data: bytes) -> None:
    assert murmur2(data) == reference(data)


def test_memory_is_bounded_and_what_is_forgotten_is_found_again() -> None:
    hashes = KeyHashes(limit=10)
    keys = [b"%d" % number for number in range(95)]

    first = [hashes[key] for key in keys]

    assert len(hashes) <= 10
    assert [hashes[key] for key in keys] == first


def test_long_keys_are_not_kept() -> None:
    hashes = KeyHashes()

    key = b"x" * (LONGEST_REMEMBERED_BYTES + 1)

    assert hashes[key] == murmur2(key) & 0x7FFFFFFF
    assert len(hashes) == 0
