"""COPY BOTH frames of a logical replication stream.

Source: "Streaming Replication Protocol" in the Postgres manual: XLogData (``w``),
Primary keepalive (``k``), Standby status update (``r``). Times on the wire count
microseconds from 2000-01-01.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from cdc.errors import DecodeError
from slots.lsn import Lsn

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970-01-01."""

_KEEPALIVE = struct.Struct("!QqB")
_STATUS = struct.Struct("!cQQQqB")
_WAL_DATA_HEADER = 1 + struct.calcsize("!QQq")
_KEEPALIVE_SIZE = 1 + _KEEPALIVE.size
_WAL_DATA_TAG = ord("w")
_KEEPALIVE_TAG = ord("k")


WalData: TypeAlias = bytes
"""A message of the output plugin, as it is; there is one for every row.

The frame's own ``walStart`` is left out. It is no position to keep: for a commit it is
the end of the transaction, for a pgoutput Relation it is 0/0.
"""


class Keepalive(NamedTuple):
    """The server tells how far it has read, and may ask for a reply."""

    wal_end: Lsn
    sent_at_us: int
    reply_requested: bool


Frame: TypeAlias = WalData | Keepalive


def parse(data: memoryview) -> Frame:
    """Read one CopyData payload; raise DecodeError for anything but ``w`` and ``k``."""
    if not len(data):
        raise DecodeError("replication frame: empty, at offset 0")
    tag = data[0]
    if tag == _WAL_DATA_TAG:
        if len(data) < _WAL_DATA_HEADER:
            raise DecodeError(f"replication frame 'w': cut off at offset {len(data)}")
        return data[_WAL_DATA_HEADER:].tobytes()
    if tag == _KEEPALIVE_TAG:
        if len(data) != _KEEPALIVE_SIZE:
            raise DecodeError(
                f"replication frame 'k': {len(data)} bytes, expected {_KEEPALIVE_SIZE}"
            )
        wal_end, sent_at, reply = _KEEPALIVE.unpack_from(data, 1)
        return Keepalive(Lsn(wal_end), sent_at + POSTGRES_EPOCH_US, reply != 0)
    raise DecodeError(f"replication frame: unknown kind 0x{tag:02x} at offset 0")


def status_update(
    *, received: Lsn, confirmed: Lsn, now_us: int, asks: bool = False
) -> bytes:
    """Build the reply that tells the server how far we are.

    Only the flush position moves a logical slot; write is what we have received.

    Args:
        received: end of what has come in.
        confirmed: end of what is durable at the broker and may be forgotten.
        now_us: our clock, microseconds since 1970-01-01.
        asks: whether the server is to answer with a keepalive.

    """
    return _STATUS.pack(
        b"r", received, confirmed, confirmed, now_us - POSTGRES_EPOCH_US, asks
    )
