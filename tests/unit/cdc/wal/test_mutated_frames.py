"""Damaged messages: a change or a DecodeError, never anything else.

The long run: ``FRAMES=1000000 SEED=1`` in the environment of pytest, this file alone.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from cdc.errors import DecodeError
from cdc.wal.changes import Begin, Commit, Insert, Relation, Skipped
from tests.data.capture import CAPTURES, captured
from tests.unit.cdc.wal.test_captured import decoder_of

FRAMES = int(os.environ.get("FRAMES", "6000"))
SEED = int(os.environ.get("SEED", "20261201"))
CHANGES = (Begin, Commit, Insert, Relation, Skipped)


def damaged(message: bytes, other: bytes, random: Random) -> bytes:
    """Flip, cut, insert, splice, or write a wild length; once or a few times."""
    data = bytearray(message)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = random.randbytes(random.randrange(1, 9))
            case 3:
                data[at : at + random.randrange(8)] = b""
            case 4:
                data[at:] = other[random.randrange(len(other) + 1) :]
            case _:
                data[at : at + 4] = random.choice(
                    (
                        b"\0\0\0\0",
                        b"\xff\xff\xff\xff",
                        b"\x7f\xff\xff\xff",
                        b"\0\0\0\x01",
                    )
                )
    return bytes(data)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_damaged_messages_are_a_change_or_a_decode_error(
    plugin: str, major: str
) -> None:
    random = Random(SEED)  # noqa: S311 - repeatable by its seed
    messages = captured(plugin, major)
    # The large ones say nothing new and take all the time.
    small = [message for message in messages if len(message) < 4000]
    refused = 0
    decoder = decoder_of(plugin)
    for number in range(FRAMES // len(CAPTURES)):
        if number % 500 == 0:
            decoder = decoder_of(plugin)
            for message in messages:
                decoder.decode(message)
        message = damaged(random.choice(small), random.choice(small), random)
        try:
            change = decoder.decode(message)
        except DecodeError:
            refused += 1
        else:
            assert isinstance(change, CHANGES), message

    assert 0 < refused < FRAMES
