"""Damaged frames: a keepalive, a change or a DecodeError, never anything else.

The long run: ``FRAMES=1000000 SEED=1`` in the environment of pytest, this file alone;
the frames are shared out among the captures.
"""

from __future__ import annotations

import os
import re
from random import Random

import pytest

from cdc.errors import DecodeError
from cdc.wal import frames
from cdc.wal.changes import Begin, Commit, Insert, Relation, Skipped
from cdc.wal.frames import Keepalive
from tests.data.capture import CAPTURES, captured, captured_frames
from tests.unit.cdc.wal.test_captured import decoder_of

FRAMES = int(os.environ.get("FRAMES", "6000"))
SEED = int(os.environ.get("SEED", "20261201"))
CHANGES = (Begin, Commit, Insert, Relation, Skipped)
# A value or a name, as far as a pattern can tell.
TOKEN = re.compile(rb'"[^"\\]*"|-?[0-9][0-9.]*|null|true|false|\[\]')
# The larger ones say nothing new and take all the time.
LARGEST = 4000
HEADER = 25
LENGTHS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x01")
# What is no damage to JSON's syntax gets past the parser, to where rows are read.
FRAGMENTS = (
    b"null true false 0 -0 -1 1.5 1e400 4294967296 18446744073709551616 NaN"
    b' "" "\\x" "x" "\\ud83d" [] {} [[]] [null] {"value":1} {"name":"n"}'
    b' "B" "C" "I" "U" "D" "T" "M" "0/0" "0/1" "action" "columns" "value" "typeoid"'
).split()
FRAGMENTS += [b"9" * 400, b"[" * 1010 + b"]" * 1010]


def damaged(frame: bytes, other: bytes, random: Random) -> bytes:
    """Flip, cut, insert, splice, or write a wild length; once or a few times."""
    data = bytearray(frame)
    # The frame's own header is short: most damage is to be behind it.
    first = random.choice((0, HEADER, HEADER, HEADER))
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randint(min(first, len(data)), len(data))
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
                data[at : at + 4] = random.choice(LENGTHS)
    return bytes(data)


def retold(frame: bytes, random: Random) -> bytes:
    """Put other JSON in the place of a value or a name, once or a few times."""
    text = frame[HEADER:]
    for _ in range(random.choice((1, 1, 2, 4))):
        tokens = list(TOKEN.finditer(text))
        if not tokens:
            break
        token = random.choice(tokens)
        text = text[: token.start()] + random.choice(FRAGMENTS) + text[token.end() :]
    return frame[:HEADER] + text


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("plugin", "major"), CAPTURES)
def test_damaged_frames_are_a_keepalive_a_change_or_a_decode_error(
    plugin: str, major: str
) -> None:
    random = Random(SEED)  # noqa: S311 - repeatable by its seed
    whole = [f for f in captured_frames(plugin, major) if len(f) < LARGEST]
    is_json = plugin == "wal2json"
    count = FRAMES // len(CAPTURES)
    refused = 0
    decoder = decoder_of(plugin)
    for number in range(count):
        if number % 500 == 0:
            # Anew, with every table known: damaged descriptions stay in a decoder.
            decoder = decoder_of(plugin)
            for message in captured(plugin, major):
                decoder.decode(message)
        frame = random.choice(whole)
        if is_json and random.random() < 0.5:
            frame = retold(frame, random)
        else:
            frame = damaged(frame, random.choice(whole), random)
        try:
            parsed = frames.parse(memoryview(frame))
            if isinstance(parsed, Keepalive):
                continue
            change = decoder.decode(parsed)
        except DecodeError:
            refused += 1
        else:
            assert isinstance(change, CHANGES), frame

    assert 0 < refused < count
