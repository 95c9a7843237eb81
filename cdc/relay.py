"""What happens to a frame: stream > wal > outbox > sink > watermark > stream.

Two tasks and no more. The pump reads frames, makes events and hands them to the sink in
batches of whatever has come; it gathers a little longer while the sink is busy, and
waits while the window in flight is full. The settler awaits deliveries in order and
moves the watermark. The stream is a third, and never waits for either.

A position goes to the keeper when every event before it is acknowledged, and only then;
the keeper stores it and lets the slot follow. An error leaves it where it is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cdc.errors import (
    CdcError,
    DecodeError,
    MappingError,
    OperatorNeeded,
    RequirementMissing,
    SinkUncertain,
    StreamLost,
    Undelivered,
)
from cdc.in_flight import InFlight
from cdc.wal.changes import Insert
from cdc.watermark import Watermark
from slots.errors import SlotError
from slots.lsn import Lsn

if TYPE_CHECKING:
    from cdc.frame_stream import FrameStream
    from cdc.gathering import Gathering
    from cdc.intake import Intake
    from cdc.keeper import PositionKeeper
    from cdc.metrics import RelayMetrics
    from cdc.position import Anchor, Position
    from cdc.sinks import Sink
    from cdc.wal.changes import Begin
    from cdc.wal.frames import Frame, Keepalive
    from cdc.watermark import Ticket

LOST_GRACE_S: Final = 1.0
"""How long acknowledgements are waited for when the stream is gone."""

LAST_WRITE_S: Final = 5.0
"""How long the store is waited for at the end of a session that broke off."""

LEAST_WRITE_S: Final = 0.5
"""And at least, when the grace of a stop is used up."""


class Relay:
    """Carries rows from one started stream to one entered sink.

    Args:
        stream: started; confirmed positions go back to it.
        intake: makes events of the stream's messages.
        sink: entered.
        keeper: stores a position before the stream may confirm it.
        metrics: what is counted.
        window_bytes: events in flight weigh at most this much, plus one batch.

    """

    def __init__(
        self,
        *,
        stream: FrameStream,
        intake: Intake,
        sink: Sink,
        keeper: PositionKeeper,
        metrics: RelayMetrics,
        window_bytes: int,
    ) -> None:
        self._stream = stream
        self._intake = intake
        self._keeper = keeper
        self._metrics = metrics
        self._watermark = Watermark(stream.confirmed)
        self._anchor: Anchor | None = None
        self._in_flight = InFlight(
            sink, metrics, window_bytes=window_bytes, acknowledged=self._acknowledged
        )
        self._limit: asyncio.Timeout | None = None
        self._due_at: float | None = None
        self._idle_at = stream.confirmed
        self._is_stopping = False
        keeper.confirm = self._stored

    @property
    def confirmed(self) -> Lsn:
        """Every event up to here is acknowledged and the position stored."""
        return min(self._watermark.confirmed, self._keeper.position.end_lsn)

    @property
    def position(self) -> Position:
        """What is stored."""
        return self._keeper.position

    @property
    def is_on_our_history(self) -> bool:
        """Whether the stream has proven to be where the stored position is of."""
        return self._intake.is_open

    @property
    def unacknowledged(self) -> int:
        """Events given to the sink of which nothing is known yet."""
        return self._in_flight.unacknowledged

    @property
    def open_transaction(self) -> Begin | None:
        """The transaction that is being read."""
        return self._intake.open_transaction

    def stop(self, *, grace_s: float) -> None:
        """Take no more from the stream; :meth:`run` drains and ends in time."""
        self._is_stopping = True
        self._bound(grace_s)
        self._stream.interrupt()
        self._in_flight.room.set()

    def _bound(self, limit_s: float) -> None:
        """Give what is left of the run a limit, unless it has one already."""
        if self._limit is not None and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + limit_s)

    async def run(self, *, grace_s: float) -> None:
        """Carry until told to stop, or until something goes wrong.

        What is in flight when the end comes is waited for, whatever the reason of the
        end, as long as ``grace_s``; the last position is told to the server.

        Raises:
            CdcError: what ended it; a stop with everything acknowledged raises nothing.
            Undelivered: told to stop, and the grace was not enough.

        """
        reason: Exception | None = None
        try:
            async with (
                asyncio.timeout(None) as self._limit,
                asyncio.TaskGroup() as group,
            ):
                settler = group.create_task(self._in_flight.settle(), name="settler")
                group.create_task(self._keeper.run(), name="keeper")
                watcher = group.create_task(self._notice_end(), name="stream-watcher")
                reason = await self._pumped()
                watcher.cancel()
                self._in_flight.close()
                # Acknowledgements that cannot be told to the server any more are not
                # worth a long wait: the events come again.
                self._bound(LOST_GRACE_S if isinstance(reason, StreamLost) else grace_s)
                await settler
                self._keeper.close()
        except TimeoutError:
            reason = reason or self._too_late(grace_s)
        except ExceptionGroup as failed:
            reason = _first(failed)
        finally:
            last_write_s = self._last_write_s()
            self._limit = None
        reason = await self._keep_last(reason, last_write_s)
        await self._stream.finish(limit_s=max(1.0, grace_s / 2))
        if reason is not None:
            raise reason

    def _last_write_s(self) -> float:
        """Return how long the store may take: when stopped, what the grace has left."""
        deadline = None if self._limit is None else self._limit.when()
        if not self._is_stopping or deadline is None:
            return LAST_WRITE_S
        return max(LEAST_WRITE_S, deadline - asyncio.get_running_loop().time())

    async def _keep_last(
        self, reason: Exception | None, limit_s: float
    ) -> Exception | None:
        """Store what is acknowledged; return the reason of the end.

        A store that fails now is no reason when there is one already: what is not
        stored is delivered again.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._keeper.finish()
        except TimeoutError:
            late = f"the position was not stored within {limit_s:.1f} s"
            return reason or SinkUncertain(late)
        except (CdcError, SlotError) as exc:
            return reason or exc
        return reason

    def _too_late(self, grace_s: float) -> CdcError:
        if not self.unacknowledged:
            return SinkUncertain(f"the position was not stored within {grace_s:g} s")
        return Undelivered(
            f"stopped with {self.unacknowledged} events unacknowledged after"
            f" {grace_s:g} s; the slot stays at {self._watermark.confirmed}"
        )

    # -- the pump ---------------------------------------------------------------------

    async def _pumped(self) -> Exception | None:
        """Pump until it ends; return what ended it, so that the rest can be settled."""
        try:
            await self._pump()
        except (DecodeError, MappingError, RequirementMissing, OperatorNeeded) as exc:
            await self._send_whole()
            return exc
        except Exception as exc:  # noqa: BLE001 - a value for now, raised by run
            return exc
        return None

    async def _send_whole(self) -> None:
        """Hand over what is complete before a change that cannot be published.

        Not the beginning of its own transaction: that would come again with each start
        until the cause is mended.
        """
        self._intake.gathering.keep_whole()
        if self._intake.gathering:
            await self._send()

    async def _notice_end(self) -> None:
        """Wake a pump that waits for room when the stream has ended meanwhile."""
        await self._stream.ended.wait()
        self._in_flight.room.set()

    async def _pump(self) -> None:
        """Turn frames into batches, as they come."""
        while not self._is_stopping:
            await self._take_all(await self._stream.read())
            if self._intake.gathering and self._is_time_to_send():
                await self._send()
        if self._stream.failure is not None:
            # A stop that comes together with a failure must not hide it.
            raise self._stream.failure

    async def _take_all(self, frames: list[Frame]) -> None:
        take = self._intake.take
        for frame in frames:
            if isinstance(frame, bytes):
                taken = take(frame)
                if taken is not None:
                    await self._follow(taken)
            else:
                self._keepalive(frame)

    async def _follow(self, taken: Insert | Gathering | Lsn) -> None:
        """Do what the intake cannot do by itself."""
        if isinstance(taken, Lsn):
            self._stream.received(taken)
            self._offer(taken)
            return
        full = await self._intake.meet(taken) if isinstance(taken, Insert) else taken
        # What is held back fills nothing that could be sent.
        if full:
            await self._send()

    def _is_time_to_send(self) -> bool:
        """Tell whether what is gathered may go; if not, have the pump wake up then."""
        linger_s = self._in_flight.linger_s
        if not linger_s:
            return True
        loop = asyncio.get_running_loop()
        if self._due_at is None:
            self._due_at = loop.time() + linger_s
            loop.call_at(self._due_at, self._stream.interrupt)
        return loop.time() >= self._due_at

    async def _send(self) -> None:
        """Hand the batch to the sink, once the window has room for it."""
        self._due_at = None
        while self._in_flight.is_full:
            if self._stream.failure is not None:
                raise self._stream.failure
            if self._is_stopping:
                # Not tracked, so the position stays below it; the next start reads it.
                return
            self._in_flight.room.clear()
            await self._in_flight.room.wait()
        gathered = self._intake.hand_over()
        batch = gathered.batch()
        # Tracked before the sink has it: from here on no offer may pass it.
        if batch.end_lsn is not None:
            self._stream.received(batch.end_lsn)
        ticket = self._watermark.track(batch.end_lsn)
        if self._intake.is_open:
            # The server had nothing more up to there when these were gathered.
            self._watermark.offer(self._idle_at)
        await self._in_flight.send(gathered, batch, ticket)

    def _keepalive(self, frame: Keepalive) -> None:
        # Inside a transaction the position says nothing about its end.
        if self._intake.open_transaction is None:
            self._intake.passed(frame.wal_end)
            self._idle_at = frame.wal_end
            self._offer(frame.wal_end)

    def _offer(self, position: Lsn) -> None:
        # Until the history has proven to be ours, it is not ours to let go of: what was
        # dropped as a repeat may be something else.
        if self._intake.is_open and not self._intake.gathering:
            self._watermark.offer(position)
            self._confirm()

    def _confirm(self) -> None:
        self._keeper.moved(self._watermark.confirmed, self._anchor)

    def _stored(self, position: Lsn) -> None:
        """Let the slot follow to a position that is stored."""
        if position > self._stream.confirmed:
            self._stream.confirm(position)
            self._metrics.confirmed(position)

    def _acknowledged(self, ticket: Ticket, anchor: Anchor | None) -> None:
        if anchor is not None:
            self._anchor = anchor
        self._watermark.resolve(ticket)
        self._confirm()
        if self._due_at is not None and not self._in_flight.linger_s:
            self._stream.interrupt()


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Give the one error that the settler ended with."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
