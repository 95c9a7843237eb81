"""The replication stream: one connection, one task that reads and writes it.

What cost others days, and shapes this module:

- psycopg's own wait on a replication connection must never be cancelled: it sends a
  query cancel and the walsender ends. Here the socket is watched with ``add_reader``;
  waking up late costs nothing (rule 4).
- The server kills a client that sends no status for ``wal_sender_timeout``, even one
  that is busy reading. Status goes out on a timer that waits for nobody (rule 2), also
  while reading is paused because the window is full.
- libpq may hold whole messages that the socket knows nothing of, and TLS may hold bytes
  that libpq knows nothing of: reading goes on until both are empty.
- Silence is not death: a walsender may decode for half a minute without a word, and one
  that hears from us has no reason to speak at all. So after a while of silence the
  status asks for an answer; a dead line is found by TCP keepalive and, far later, by
  ``silence_timeout_s`` (rule 3).
- A server that shuts down waits for us to confirm all it has sent, and asks again and
  again. After ``shutdown_patience_s`` of that we leave, or it could never stop.

Source: "Streaming Replication Protocol", Postgres manual.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from psycopg import OperationalError, sql

from cdc.errors import CdcError, RequirementMissing, StreamLost
from cdc.status import StatusSchedule
from cdc.stream_errors import server_error
from cdc.wal import frames
from cdc.wal.frames import Keepalive
from slots.connect import translated
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from psycopg import AsyncConnection
    from psycopg.errors import Diagnostic
    from psycopg.rows import TupleRow

    from cdc.wal.frames import Frame

BUFFER_BYTES: Final = 256 << 10
"""Frames handed over but not yet taken; beyond it the socket is left unread.

What is taken at once becomes objects of several times its size: more is no faster, and
stays with the process as memory.
"""

_READS_AT_ONCE: Final = 3
"""A TLS record holds 16 KiB and libpq reads at least 8 KiB a call: this many calls
empty what OpenSSL keeps back."""

_QUESTIONS: Final = 10
"""So many times may a silent server be asked, at least, before the line is dead."""

_OBJECT_NOT_IN_STATE: Final = "55000"


class ReplicationStream:
    """Frames of one slot in, status updates out.

    Use as an async context manager around a connection made with ``replication=True``;
    the connection is closed at the end.

    Args:
        connection: nothing else may use it.
        publication: its name, None for a plugin without one. A notice that it was
            skipped (Postgres 18) ends the stream: what follows would be a gap.
        status_interval_s: at most this long between two status updates.
        silence_timeout_s: without a single byte for so long the line counts as dead.
        shutdown_patience_s: how long a server that shuts down is kept waiting.

    Attributes:
        ended: set once no frame will come any more.
        failure: why it ended, None while it runs and after :meth:`finish`.
        server_notice: the server's last notice, one line.

    """

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        *,
        publication: str | None,
        status_interval_s: float = 10.0,
        silence_timeout_s: float = 300.0,
        shutdown_patience_s: float = 5.0,
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._descriptor = connection.pgconn.socket
        self._publication = publication
        self._silence_timeout_s = silence_timeout_s
        self._shutdown_patience_s = shutdown_patience_s
        self._schedule = StatusSchedule(status_interval_s, now=time.monotonic())
        self._heard_at = time.monotonic()
        self._frames: list[Frame] = []
        self._buffered = 0
        self._arrived = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_watched = False
        self._is_readable = False
        self._has_leftover = False
        self._is_finishing = False
        self.failure: CdcError | None = None
        self.ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._received = ZERO
        self._confirmed = ZERO
        self.server_notice = ""

    @property
    def confirmed(self) -> Lsn:
        """The position last told, or about to be told, to the server."""
        return self._confirmed

    async def __aenter__(self) -> Self:
        self._connection.add_notice_handler(self._on_notice)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._connection.close()

    async def start(self, slot: str, options: Mapping[str, str], *, at: Lsn) -> None:
        """Begin streaming.

        Args:
            slot: name of the slot.
            options: of the output plugin.
            at: the slot's own confirmed position; what the server is told until
                something else is confirmed.

        Raises what :func:`slots.connect.translated` raises.

        """
        statement = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
            sql.Identifier(slot),
            sql.SQL(str(at)),
            sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(name), _literal(value))
                for name, value in options.items()
            ),
        )
        with translated():
            await self._connection.execute(statement)
        self._confirmed = self._received = at
        # The server may have filled libpq's buffer together with its answer.
        self._has_leftover = True
        self._wake.set()
        self._task = asyncio.create_task(self._own(), name="replication-stream")

    async def read(self) -> list[Frame]:
        """Wait for frames and take all that have come, in order.

        An empty list means that :meth:`interrupt` was called.

        Raises:
            StreamLost: the connection broke, or the server left.
            DecodingFailed: the server cannot decode what comes next.
            RequirementMissing: publication, plugin or privilege is gone.
            DecodeError: bytes that are no replication frame.

        """
        await self._arrived.wait()
        if not self._frames and self.failure is not None:
            raise self.failure
        taken, self._frames = self._frames, []
        self._buffered = 0
        if self.failure is None:
            self._arrived.clear()
        if self._has_leftover:
            self._wake.set()
        return taken

    def interrupt(self) -> None:
        """Make a waiting :meth:`read` return."""
        self._arrived.set()

    def confirm(self, position: Lsn) -> None:
        """Let the server forget what lies before a position; never goes back.

        Raises ValueError for a position beyond what was received: a server takes any
        future position, and then never sends what comes before it.
        """
        if position > self._received:
            raise ValueError(
                f"{position} is beyond {self._received}, the last received"
            )
        if position > self._confirmed:
            self._confirmed = position
            self._schedule.moved()
            self._wake.set()

    def received(self, position: Lsn) -> None:
        """Take note of a position read from a commit; raises the bound of confirm."""
        self._received = max(self._received, position)

    async def finish(self, *, limit_s: float) -> None:
        """Tell the last position, end the stream in order; bounded by ``limit_s``.

        A line that breaks meanwhile is no error: it was to end anyway.
        """
        if self._task is None or self._task.done():
            return
        self._is_finishing = True
        self._wake.set()
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(self._task)
        except TimeoutError:
            return

    # -- the owner of the socket ------------------------------------------------------

    async def _own(self) -> None:
        """Read, answer, tell the position, until told to finish or the line breaks."""
        loop = asyncio.get_running_loop()
        try:
            while self.failure is None and not self._is_finishing:
                self._watch(wanted=self._buffered < BUFFER_BYTES)
                due_s = self._schedule.wait_s(now=time.monotonic())
                timer = loop.call_later(due_s, self._wake.set)
                await self._wake.wait()
                timer.cancel()
                self._wake.clear()
                if self._is_readable or self._has_leftover:
                    self._read_all()
                self._tell_if_due()
            if self._is_finishing:
                await self._end()
        except OperationalError as exc:
            self.failure = StreamLost(f"replication connection lost: {_line(exc)}")
        except CdcError as exc:
            self.failure = exc
        finally:
            self._watch(wanted=False)
            self._arrived.set()
            self.ended.set()

    def _watch(self, *, wanted: bool) -> None:
        """Register the socket only while there is room: readiness has no memory."""
        if wanted != self._is_watched:
            self._is_watched = wanted
            loop = asyncio.get_running_loop()
            if wanted:
                loop.add_reader(self._descriptor, self._on_readable)
            else:
                loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        self._is_readable = True
        self._wake.set()

    def _read_all(self) -> None:
        """Take what socket, TLS and libpq hold, as far as there is room."""
        silent_reads = 0
        if self._is_readable:
            self._is_readable = False
            self._heard_at = time.monotonic()
        self._has_leftover = self._take_frames()
        while not self._has_leftover and silent_reads < _READS_AT_ONCE:
            self._pgconn.consume_input()
            count = len(self._frames)
            self._has_leftover = self._take_frames()
            silent_reads = silent_reads + 1 if len(self._frames) == count else 0
        if self._frames:
            self._arrived.set()

    def _take_frames(self) -> bool:
        """Empty libpq's buffer; tell whether it may hold more than we have room."""
        take, parse = self._pgconn.get_copy_data, frames.parse
        while self._buffered < BUFFER_BYTES:
            size, data = take(1)
            if self.failure is not None:
                raise self.failure
            if size <= 0:
                if size < 0:
                    self._raise_end()
                return False
            frame = parse(data)
            if type(frame) is Keepalive:
                self._received = max(self._received, frame.wal_end)
                if frame.reply_requested:
                    self._schedule.asked(now=time.monotonic())
            self._frames.append(frame)
            self._buffered += size
        return True

    def _raise_end(self) -> None:
        """Tell why the server ended the stream."""
        result = self._pgconn.get_result()
        if result is not None and result.error_message:
            raise server_error(result)
        raise StreamLost("the server ended the replication stream")

    def _tell_if_due(self) -> None:
        now = time.monotonic()
        if self._schedule.wait_s(now=now) <= 0:
            self._tell()
        if self._schedule.asked_for_s(now=now) > self._shutdown_patience_s:
            raise StreamLost("the server is shutting down and waits for us to leave")
        if now - self._heard_at > self._silence_timeout_s:
            raise StreamLost(
                f"not a byte from the server for {now - self._heard_at:.0f} s"
            )

    def _tell(self) -> None:
        """Send a status update; a full socket keeps it for the next flush."""
        silent_s = time.monotonic() - self._heard_at
        status = frames.status_update(
            received=self._received,
            confirmed=self._confirmed,
            now_us=time.time_ns() // 1000,
            asks=silent_s > self._silence_timeout_s / _QUESTIONS,
        )
        self._pgconn.put_copy_data(status)
        self._pgconn.flush()
        self._schedule.sent(now=time.monotonic())

    async def _end(self) -> None:
        """Send the last status and CopyDone, then wait for the server's own CopyDone.

        The server works through both in order, so its CopyDone says that the position
        has been taken.
        """
        self._tell()
        self._pgconn.put_copy_end()
        self._pgconn.flush()
        self._watch(wanted=True)
        while True:
            size, _data = self._pgconn.get_copy_data(1)
            if size < 0:
                return
            if size == 0:
                await self._wake.wait()
                self._wake.clear()
                self._pgconn.consume_input()

    def _on_notice(self, notice: Diagnostic) -> None:
        text = _line(notice.message_primary or "")
        self.server_notice = text
        # The text may be in any language; the name in it is not. Notices about a
        # standby that is waited for have the same SQLSTATE and name their parameter.
        if (
            notice.sqlstate == _OBJECT_NOT_IN_STATE
            and self._publication is not None
            and f'"{self._publication}"' in text
            and "synchronized_standby_slots" not in text
        ):
            self.failure = RequirementMissing(
                f"the server skips publication {self._publication!r}: {text}",
                hint="make the publication again; rows written meanwhile are in the"
                " table and not in the stream: cdc resnapshot, or with a position"
                " behind them: cdc adopt --accept-gap LSN",
            )


def _literal(text: str) -> sql.SQL:
    """Quote for the replication grammar, which knows '' and no backslash escapes."""
    return sql.SQL("'" + text.replace("'", "''") + "'")


def _line(error: object) -> str:
    return " ".join(str(error).split())
