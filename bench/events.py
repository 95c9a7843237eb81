"""What is written into the outbox: how many, how large, for whom, beside what else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYLOAD_BYTES: Final = 190
"""With the other columns that makes some 330 B in the WAL."""

NOISE_TABLE: Final = """
CREATE TABLE IF NOT EXISTS public.noise (
    id bigint GENERATED ALWAYS AS IDENTITY, filler text NOT NULL
)"""

_AT_ONCE: Final = 50_000
_PAYLOAD_FRAME: Final = 30
_NOISE_FOR_AN_EVENT: Final = 26
"""So many rows of another table make up 95 % of the WAL beside one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """A load of events.

    Attributes:
        count: how many; a multiple of ``in_transaction``.
        in_transaction: rows in a transaction.
        payload_bytes: about so long is each payload as text.
        kinds: distinct aggregate types, so many topics.
        keys: distinct keys.
        has_noise: whether other tables fill 95 % of the WAL.

    """

    count: int
    in_transaction: int = 5
    payload_bytes: int = PAYLOAD_BYTES
    kinds: int = 1
    keys: int = 10_000
    has_noise: bool = False

    @classmethod
    def about(cls, count: int, in_transaction: int) -> Events:
        """Return whole transactions, about ``count`` events, at least one of them."""
        transactions = max(1, round(count / in_transaction))
        return cls(count=transactions * in_transaction, in_transaction=in_transaction)

    def topics(self, prefix: str) -> list[str]:
        """Return the topics the events go to, when each kind has one of its own."""
        return [f"{prefix}.order{kind}" for kind in range(self.kinds)]

    def statements(self) -> Iterator[str]:
        """Yield statements that commit the events, to be run outside a transaction."""
        transactions = self.count // self.in_transaction
        step = max(1, _AT_ONCE // self.in_transaction)
        for first in range(0, transactions, step):
            last = min(first + step, transactions) - 1
            yield (
                f"DO $$ BEGIN FOR t IN {first}..{last} LOOP"
                f" {self._noise()}{self._insert()} COMMIT; END LOOP; END $$"
            )

    def _insert(self) -> str:
        rows = self.in_transaction
        return (
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)"
            f" SELECT 'order' || n % {self.kinds}, 'order-' || n % {self.keys},"
            f" 'OrderPlaced', jsonb_build_object('n', n, 'filler', {self._filler()})"
            f" FROM generate_series(t * {rows} + 1, t * {rows} + {rows}) AS n;"
        )

    def _filler(self) -> str:
        length = max(1, self.payload_bytes - _PAYLOAD_FRAME)
        if length <= PAYLOAD_BYTES:
            return f"repeat('x', {length})"
        # Nothing that Postgres could compress: it would have to undo that for us.
        chunks = -(-length // 32)
        return (
            f"(SELECT left(string_agg(md5(random()::text || n || c), ''), {length})"
            f" FROM generate_series(1, {chunks}) AS c)"
        )

    def _noise(self) -> str:
        if not self.has_noise:
            return ""
        count = _NOISE_FOR_AN_EVENT * self.in_transaction
        return (
            "INSERT INTO public.noise (filler) SELECT repeat('y', 330)"
            f" FROM generate_series(1, {count}); COMMIT; "
        )
