"""What happens when a session ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cdc.errors import (
    CdcError,
    ColumnMissing,
    DecodeError,
    DecodingFailed,
    ExitCode,
    MappingError,
    OperatorNeeded,
    RecordRefused,
    RequirementMissing,
    SinkDenied,
    SinkUnavailable,
    SinkUncertain,
    StreamLost,
    Undelivered,
)
from cdc.lifecycle import State
from cdc.metrics import RelayMetrics
from cdc.supervisor import Patience, Supervisor
from slots.errors import (
    AuthenticationRefused,
    BadConnectionSettings,
    DatabaseMissing,
    PermissionDenied,
    ServerUnavailable,
    SlotBusy,
    SlotLost,
    SlotMissing,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = Patience(backoff_initial_s=0.001, backoff_max_s=0.002, startup_timeout_s=5.0)


class Script:
    """Sessions that end as they are told; the last entry is repeated.

    An entry is (whether it streams first, what ends it); None waits to be stopped.
    """

    def __init__(self, *entries: tuple[bool, Exception | None]) -> None:
        self._entries = list(entries)
        self.count = 0

    def attempt(self, started: Callable[[], None]) -> Attempt:
        entry = self._entries[min(self.count, len(self._entries) - 1)]
        self.count += 1
        return Attempt(*entry, started)


class Attempt:
    def __init__(
        self,
        streams: bool,  # noqa: FBT001 - an entry of a script, unpacked
        end: Exception | None,
        started: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._end = end
        self._started = started
        self._stopped = asyncio.Event()
        self.place = "what follows 0/10"

    async def run(self) -> None:
        if self._streams:
            self._started()
        if self._end is not None:
            await asyncio.sleep(0)
            raise self._end
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


def supervised(script: Script, patience: Patience = QUICK) -> Supervisor:
    return Supervisor(script.attempt, patience, RelayMetrics())


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (AuthenticationRefused(), ExitCode.REQUIREMENT),
        (DatabaseMissing(), ExitCode.REQUIREMENT),
        (PermissionDenied(), ExitCode.REQUIREMENT),
        (SinkDenied(), ExitCode.REQUIREMENT),
        (RequirementMissing(), ExitCode.REQUIREMENT),
        (SlotMissing(), ExitCode.REQUIREMENT),
        (BadConnectionSettings(), ExitCode.USAGE),
        (SlotLost(), ExitCode.OPERATOR),
        (OperatorNeeded(), ExitCode.OPERATOR),
        (KeyError("a bug"), ExitCode.FAILED),
    ],
)
async def test_a_start_ends_with_the_code_of_the_fault_table(
    end: Exception, code: ExitCode
) -> None:
    script = Script((False, end))

    assert await supervised(script).run() is code
    assert script.count == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (RequirementMissing(), ExitCode.REQUIREMENT),
        (ColumnMissing(), ExitCode.REQUIREMENT),
        (SlotMissing(), ExitCode.OPERATOR),
        (SlotLost(), ExitCode.OPERATOR),
        (DecodeError(), ExitCode.UNACKNOWLEDGED),
        (MappingError(), ExitCode.UNACKNOWLEDGED),
        (RecordRefused(), ExitCode.UNACKNOWLEDGED),
    ],
)
async def test_a_run_ends_with_the_code_of_the_fault_table(
    end: Exception, code: ExitCode
) -> None:
    assert await supervised(Script((True, end))).run() is code


@pytest.mark.parametrize(
    "end",
    [
        StreamLost(),
        SinkUnavailable(),
        SinkUncertain(),
        ServerUnavailable(),
        # Secrets rotate: what worked once will work again.
        AuthenticationRefused(),
        SinkDenied(),
        # A password file is briefly empty or absent while it is replaced.
        BadConnectionSettings(),
    ],
)
async def test_what_may_pass_is_tried_again_while_running(end: Exception) -> None:
    script = Script((True, end), (True, end), (True, None))
    subject = supervised(script)
    run = asyncio.create_task(subject.run())

    await eventually(lambda: script.count == 3)
    await eventually(lambda: subject.state is State.STREAMING)
    subject.stop()

    assert await run is ExitCode.CLEAN


async def test_a_start_waits_for_a_server_only_so_long() -> None:
    script = Script((False, ServerUnavailable("db:5432: nobody there")))
    patience = Patience(
        startup_timeout_s=0.05, backoff_initial_s=0.001, backoff_max_s=0.01
    )

    assert await supervised(script, patience).run() is ExitCode.REQUIREMENT
    assert script.count > 1


async def test_a_slot_in_use_is_waited_for_without_limit_unless_one_is_set() -> None:
    busy = SlotBusy("slot s is in use by pid 7")
    script = Script(*[(False, busy)] * 20, (True, None))
    subject = supervised(script)
    run = asyncio.create_task(subject.run())

    await eventually(lambda: subject.state is State.STREAMING)
    subject.stop()

    assert await run is ExitCode.CLEAN


async def test_a_slot_in_use_is_given_up_at_the_limit() -> None:
    patience = Patience(slot_wait_s=0.05, backoff_initial_s=0.001, backoff_max_s=0.01)
    subject = supervised(Script((False, SlotBusy("in use by pid 7"))), patience)

    assert await subject.run() is ExitCode.SLOT_WAIT
    assert "pid 7" in subject.reason


async def test_where_an_operator_decides_it_parks_if_it_can_be_seen() -> None:
    patience = Patience(backoff_initial_s=0.001, parks=True)
    subject = supervised(Script((False, SlotLost("slot s is lost"))), patience)
    run = asyncio.create_task(subject.run())

    await eventually(lambda: subject.state is State.SLOT_LOST)
    assert subject.reason == "slot s is lost"
    subject.stop()

    assert await run is ExitCode.OPERATOR


async def test_the_same_decoding_failure_at_the_same_place_is_called_stuck() -> None:
    failure = DecodingFailed("invalid memory alloc request size (SQLSTATE XX000)")
    script = Script((True, failure))
    subject = supervised(script)
    run = asyncio.create_task(subject.run())

    await eventually(lambda: subject.state is State.STUCK)
    assert "stuck on what follows 0/10" in subject.reason
    assert "XX000" in subject.reason
    assert script.count >= 3
    subject.stop()

    assert await run is ExitCode.CLEAN


async def test_a_stop_before_anything_flows_is_clean_and_quick() -> None:
    subject = supervised(Script((False, None)))
    run = asyncio.create_task(subject.run())
    await eventually(lambda: subject._task is not None)

    subject.stop()

    async with asyncio.timeout(1):
        assert await run is ExitCode.CLEAN


async def test_a_stop_that_leaves_events_open_says_so() -> None:
    class Open(Attempt):
        async def run(self) -> None:
            self._started()
            await self._stopped.wait()
            raise Undelivered

    subject = Supervisor(
        lambda started: Open(True, None, started),  # noqa: FBT003 - streams
        QUICK,
        RelayMetrics(),
    )
    run = asyncio.create_task(subject.run())
    await eventually(lambda: subject.state is State.STREAMING)

    subject.stop()

    assert await run is ExitCode.UNACKNOWLEDGED


async def test_a_second_signal_does_not_wait_for_the_drain() -> None:
    class Deaf(Attempt):
        def stop(self) -> None:
            pass

    subject = Supervisor(
        lambda started: Deaf(True, None, started),  # noqa: FBT003 - streams
        QUICK,
        RelayMetrics(),
    )
    run = asyncio.create_task(subject.run())
    await eventually(lambda: subject.state is State.STREAMING)

    subject.stop()
    assert subject.state is State.DRAINING
    subject.stop()

    async with asyncio.timeout(1):
        assert await run is ExitCode.UNACKNOWLEDGED


async def test_errors_are_counted_by_kind() -> None:
    metrics = RelayMetrics()
    script = Script((True, StreamLost()), (True, CdcError("no way")))

    await Supervisor(script.attempt, QUICK, metrics).run()

    for kind in ("stream", "error"):
        name = "walferry_errors_total"
        assert metrics.registry.get_sample_value(name, {"kind": kind}) == 1.0
