"""A record batch that takes records at the speed of the library's compiled encoder.

With :mod:`cdc.sinks.kafka_producer` this is the only module that reaches into private
parts of aiokafka; pyproject.toml holds it to one minor version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.producer.message_accumulator import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable


class RecordBatch(BatchBuilder):  # type: ignore[misc] # aiokafka has no types
    """Records for one partition.

    Args:
        limit_bytes: a record that would make the batch larger is not taken, unless it
            is the first.
        compression: the encoder's number for it.

    """

    def __init__(self, limit_bytes: int, compression: int) -> None:
        super().__init__(limit_bytes, compression, is_transactional=0)

    @property
    def encode(self) -> Callable[..., Any]:
        """The encoder: offset, timestamp in ms, key, value, headers; None when full.

        ``append()`` wraps it, and for a record of ours the wrapper takes almost as long
        as the encoding. Offsets count from 0. Whoever uses it says at the end how many
        it has taken, see :meth:`filled`, and lets go of it: it holds the memory.
        """
        encode: Callable[..., Any] = self._builder.append
        return encode

    def filled(self, count: int) -> None:
        """Close the batch, which has taken so many records."""
        self._relative_offset = count
        self.close()
