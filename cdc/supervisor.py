"""Sessions over time: what happens when one ends.

One loop: run a session; when it ends, ask :func:`cdc.errors.disposition` and the state
table, then pause and try again, wait for the slot, recover, park, or stop with an exit
code. The only place that logs an exception.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from cdc.errors import (
    CdcError,
    DecodingFailed,
    Disposition,
    ExitCode,
    SlotWaitExpired,
    disposition,
    exit_code,
)
from cdc.failure import facts_of, is_passing, is_same, kind_of, state_of
from cdc.lifecycle import OPERATOR, Repeats, State, delays, move
from slots.errors import SlotBusy, SlotError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdc.metrics import RelayMetrics

STUCK_AFTER: Final = 3
"""The same failure at the same place, this many times in a row, is no accident."""

LOOKS_AGAIN_S: Final = 5.0
"""A parked relay looks so often whether somebody has decided."""

_TOLD: Final = (
    State.STREAMING,
    State.DRAINING,
    State.RESNAPSHOT,
    State.STOPPED,
    *OPERATOR,
)

_log = structlog.get_logger("cdc.supervisor")


class Attempt(Protocol):
    """One session, as far as the supervisor cares."""

    @property
    def place(self) -> str:
        """Where in the WAL it is, in words; empty before it streams."""
        ...

    async def run(self) -> None:
        """Carry until stopped; raise what ended it."""
        ...

    def stop(self) -> None:
        """Drain and end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long which thing is waited for, in seconds.

    Attributes:
        startup_timeout_s: for servers at the first start; afterwards for ever.
        slot_wait_s: for a slot in use; 0 is for ever.
        backoff_initial_s: the first pause after a failure.
        backoff_max_s: the longest.
        parks: stay alive, not ready, where an operator has to decide.

    """

    startup_timeout_s: float = 60.0
    slot_wait_s: float = 0.0
    backoff_initial_s: float = 0.2
    backoff_max_s: float = 10.0
    parks: bool = False


class Supervisor:
    """Runs sessions until it is told to stop or has to.

    Args:
        new_attempt: makes a session; it calls what it is given once it streams.
        patience: how long to wait for what.
        metrics: state and errors are shown there.
        recovery: makes the attempt that answers what ended a session, when the settings
            allow one; None leaves it to an operator.

    Attributes:
        failure: what an operator has to decide about, or what ended the run.

    """

    def __init__(
        self,
        new_attempt: Callable[[Callable[[], None]], Attempt],
        patience: Patience,
        metrics: RelayMetrics,
        *,
        recovery: Callable[[Exception], Attempt | None] = lambda _exc: None,
    ) -> None:
        self._recovery = recovery
        self._recovering: Attempt | None = None
        self.failure: Exception | None = None
        self._new_attempt = new_attempt
        self._patience = patience
        self._metrics = metrics
        self._attempt: Attempt | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[Exception | None] | None = None
        self._repeats = Repeats(STUCK_AFTER)
        self._began_at = time.monotonic()
        self._waiting_since: float | None = None
        self._streaming_since: float | None = None
        self._has_streamed = False
        self._pauses: Iterator[float] = self._new_pauses()
        self.state = State.STARTING
        self.reason = ""
        """Why it is not streaming, one line; empty while it is."""

    def stop(self) -> None:
        """Ask for the end: the first time to drain, the second time at once."""
        if self._stopping.is_set():
            if self._task is not None:
                self._task.cancel()
            return
        self._stopping.set()
        streams = self.state in (State.STREAMING, State.RESNAPSHOT)
        if streams and self._attempt is not None:
            self._enter(State.DRAINING, "told to stop")
            self._attempt.stop()
        elif self._task is not None:
            # It has not begun to carry: there is nothing to drain.
            self._task.cancel()

    async def run(self) -> ExitCode:
        """Carry rows until stopped; return the exit code of the run."""
        code: ExitCode | None = None
        while code is None:
            code = await self._once()
        self._enter(State.STOPPED, self.reason)
        return code

    async def _once(self) -> ExitCode | None:
        """Run one session and deal with its end; return an exit code to end with."""
        if self._stopping.is_set():
            return self._told_to_stop()
        recovering, self._recovering = self._recovering, None
        if recovering is not None:
            self._enter(State.RESNAPSHOT, self.reason)
        elif self.state not in OPERATOR:
            self._enter(State.STARTING, self.reason)
        self._attempt = recovering or self._new_attempt(self._streams)
        try:
            await self._run_attempt(self._attempt)
        except Exception as exc:  # noqa: BLE001 - whatever ended it is judged here
            return await self._after(exc, self._attempt.place)
        finally:
            self._attempt = None
            self._metrics.forget_in_flight()
        if recovering is not None and not self._stopping.is_set():
            return None
        return self._told_to_stop()

    def _told_to_stop(self) -> ExitCode:
        # What was to be decided is not decided, even if it was looking just now.
        return ExitCode.OPERATOR if self.state in OPERATOR else ExitCode.CLEAN

    async def _run_attempt(self, attempt: Attempt) -> None:
        """Run it as a task of its own, so that a second signal can cut it short."""
        async with asyncio.TaskGroup() as group:
            self._task = group.create_task(_unwrapped(attempt), name="session")
        if self._task.cancelled():
            if self.state is State.DRAINING:
                raise ForcedStop
            return
        error = self._task.result()
        if error is not None:
            raise error

    def _streams(self) -> None:
        self._has_streamed = True
        self._waiting_since = None
        self._streaming_since = time.monotonic()
        self.failure = None
        if not self._stopping.is_set():
            self._enter(State.STREAMING, "")

    async def _after(self, exc: Exception, place: str) -> ExitCode | None:
        """Judge what ended a session."""
        since, self._streaming_since = self._streaming_since, None
        lasted_s = 0.0 if since is None else time.monotonic() - since
        if lasted_s >= self._patience.backoff_max_s:
            # It went well for a while: this failure is a new one.
            self._pauses = self._new_pauses()
        self._metrics.errors.labels(kind=kind_of(exc)).inc()
        if self._stopping.is_set():
            return self._stopped_by(exc)
        if self.state in OPERATOR and is_passing(exc):
            # What was to be decided is not decided yet.
            return await self._look_again()
        if isinstance(exc, SlotBusy):
            return await self._wait_for_slot(exc)
        self._recovering = self._recovery(exc)
        if self._recovering is not None:
            _log.warning("recovering", **facts_of(exc))
            self.reason = str(exc)
            return None
        verdict = disposition(exc, has_streamed=self._has_streamed)
        if verdict is not Disposition.RETRY or self._start_takes_too_long():
            return await self._give_up(exc, place)
        if isinstance(exc, DecodingFailed) and self._repeats.seen((str(exc), place)):
            self._enter(State.STUCK, f"stuck on {place}: {exc}")
        else:
            self._enter(State.RETRYING, str(exc))
        await self._pause(exc, place)
        return None

    def _stopped_by(self, exc: Exception) -> ExitCode:
        code = exit_code(exc, has_streamed=self._has_streamed)
        retryable = disposition(exc, has_streamed=True) is Disposition.RETRY
        _log.warning("stopped", **facts_of(exc))
        if self.state in OPERATOR:
            return ExitCode.OPERATOR
        return ExitCode.UNACKNOWLEDGED if retryable else code

    async def _wait_for_slot(self, exc: SlotBusy) -> ExitCode | None:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        limit_s = self._patience.slot_wait_s
        if limit_s and now - self._waiting_since >= limit_s:
            expired = SlotWaitExpired(f"{exc}; waited {limit_s:g} s", hint=exc.hint)
            return await self._give_up(expired, "")
        self._enter(State.WAITING, str(exc))
        await self._pause(exc, "")
        return None

    async def _give_up(self, exc: Exception, place: str) -> ExitCode | None:
        code = exit_code(exc, has_streamed=self._has_streamed)
        facts = facts_of(exc)
        if place:
            facts["at"] = place
        if not isinstance(exc, CdcError | SlotError):
            facts["exc_info"] = exc
        if not is_same(exc, self.failure):
            _log.error("giving_up", exit_code=int(code), **facts)
        self.failure = exc
        if code is not ExitCode.OPERATOR:
            self.reason = str(exc)
            return code
        self._enter(state_of(exc), str(exc))
        return await self._look_again() if self._patience.parks else code

    async def _look_again(self) -> ExitCode | None:
        """Stay parked for a while; return the exit code when told to stop."""
        try:
            async with asyncio.timeout(LOOKS_AGAIN_S):
                await self._stopping.wait()
        except TimeoutError:
            return None
        return ExitCode.OPERATOR

    def _start_takes_too_long(self) -> bool:
        waited_s = time.monotonic() - self._began_at
        return not self._has_streamed and waited_s >= self._patience.startup_timeout_s

    async def _pause(self, exc: Exception, place: str) -> None:
        pause_s = next(self._pauses)
        if not self._has_streamed and self._waiting_since is None:
            left_s = self._began_at + self._patience.startup_timeout_s
            pause_s = min(pause_s, max(0.0, left_s - time.monotonic()))
        facts = facts_of(exc)
        if place:
            facts["at"] = place
        _log.warning(self.state.value, retry_in_s=round(pause_s, 2), **facts)
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _new_pauses(self) -> Iterator[float]:
        return delays(
            self._patience.backoff_initial_s,
            self._patience.backoff_max_s,
            chance=random.random,
        )

    def _enter(self, state: State, reason: str) -> None:
        if state is not self.state:
            # A failed attempt has its own line, with the reason; one is enough.
            tell = _log.info if state in _TOLD else _log.debug
            tell("state", state=state.value, was=self.state.value)
        self.state = move(self.state, state)
        self.reason = reason
        self._metrics.state(state)


class ForcedStop(CdcError):
    """Stopped at once by a second signal."""

    kind = "forced"
    exit_code = ExitCode.UNACKNOWLEDGED


async def _unwrapped(attempt: Attempt) -> Exception | None:
    """Run a session; return what ended it instead of an exception group."""
    try:
        await attempt.run()
    except Exception as exc:  # noqa: BLE001 - handed to the caller as a value
        return exc
    return None
