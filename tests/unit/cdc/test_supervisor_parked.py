"""Where an operator has to decide: parked, looking again, recovering by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from cdc.errors import (
    CdcError,
    ExitCode,
    OperatorNeeded,
    RequirementMissing,
    SinkUnavailable,
    StreamLost,
)
from cdc.lifecycle import OPERATOR, State
from cdc.metrics import RelayMetrics
from cdc.position import Cause, Disagreement, PositionMismatch, SlotGone
from cdc.supervisor import Patience, Supervisor
from slots.errors import (
    AuthenticationRefused,
    ServerUnavailable,
    SlotBusy,
    SlotLost,
)
from tests.unit.cdc.relay_parts import stored_position
from tests.unit.cdc.test_supervisor import Attempt, Script
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from typing import Any

    Entry = tuple[bool, Exception | None]

PARKS = Patience(
    backoff_initial_s=0.001, backoff_max_s=0.002, startup_timeout_s=5.0, parks=True
)
STREAMS: Entry = (True, None)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.supervisor.LOOKS_AGAIN_S", 0.005)


@pytest.fixture
def told() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def named(
    told: list[MutableMapping[str, Any]], event: str
) -> list[MutableMapping[str, Any]]:
    return [line for line in told if line["event"] == event]


def states(told: list[MutableMapping[str, Any]]) -> list[str]:
    return [line["state"] for line in named(told, "state")]


def moved(message: str = "slot walferry stands at 0/9") -> PositionMismatch:
    return PositionMismatch(message, cause=Cause.MOVED, position=stored_position(5))


def gone() -> SlotGone:
    return SlotGone("slot is lost", cause=Cause.DROPPED, position=stored_position(5))


class Running:
    """A supervisor that runs until it is stopped."""

    def __init__(
        self,
        *entries: Entry,
        patience: Patience = PARKS,
        recovery: Callable[[Exception], Attempt | None] = lambda _exc: None,
    ) -> None:
        self.script = Script(*entries)
        self.metrics = RelayMetrics()
        self.subject = Supervisor(
            self.script.attempt, patience, self.metrics, recovery=recovery
        )
        self.task = asyncio.create_task(self.subject.run())

    async def comes_to(self, state: State) -> None:
        await eventually(lambda: self.subject.state is state, what=f"it is {state}")

    async def looks(self, count: int) -> None:
        await eventually(lambda: self.script.count >= count, what=f"{count} attempts")

    async def stopped(self) -> ExitCode:
        with pytest.MonkeyPatch.context() as patch:
            if self.subject.state in OPERATOR:
                patch.setattr("cdc.supervisor.LOOKS_AGAIN_S", 3600.0)
                await self.rests()
            self.subject.stop()
            async with asyncio.timeout(5):
                return await self.task

    async def rests(self) -> None:
        """Come to a pause between two looks that does not end by itself."""
        known = -1

        def looks_no_more() -> bool:
            nonlocal known
            before, known = known, self.script.count
            return before == known

        await eventually(looks_no_more)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (gone(), State.SLOT_LOST),
        (SlotLost("lost"), State.SLOT_LOST),
        (moved(), State.POSITION_MISMATCH),
        (OperatorNeeded("unreadable"), State.PARKED),
    ],
)
async def test_it_parks_in_the_state_that_names_the_decision(
    end: Exception, state: State
) -> None:
    running = Running((False, end))

    await running.comes_to(state)
    await running.looks(3)
    assert running.subject.state is state
    assert running.subject.reason == str(end)
    assert running.subject.failure is end
    value = running.metrics.registry.get_sample_value
    assert value("walferry_state", {"state": state.value}) == 1.0

    assert await running.stopped() is ExitCode.OPERATOR


async def test_where_nobody_could_see_it_parked_it_ends_at_once() -> None:
    running = Running((False, moved()), patience=Patience())

    assert await running.task is ExitCode.OPERATOR
    assert running.script.count == 1


async def test_a_parked_relay_streams_by_itself_once_somebody_has_decided(
    told: list[MutableMapping[str, Any]],
) -> None:
    running = Running(*[(False, moved())] * 3, STREAMS)

    await running.comes_to(State.STREAMING)

    assert running.subject.failure is None
    assert running.subject.reason == ""
    assert running.script.count == 4
    assert states(told) == ["position_mismatch", "streaming"]
    assert await running.stopped() is ExitCode.CLEAN


async def test_a_running_relay_parks_and_comes_back_too() -> None:
    running = Running((True, gone()), (False, gone()), STREAMS)

    await running.comes_to(State.STREAMING)
    await running.looks(3)
    await running.comes_to(State.STREAMING)

    assert await running.stopped() is ExitCode.CLEAN


async def test_the_same_disagreement_is_told_once_and_another_one_anew(
    told: list[MutableMapping[str, Any]],
) -> None:
    running = Running(*[(False, moved())] * 5, (False, gone()))

    await running.looks(10)
    await running.stopped()

    reasons = [line["reason"] for line in named(told, "giving_up")]
    assert reasons == ["slot walferry stands at 0/9", "slot is lost"]
    assert states(told) == ["position_mismatch", "slot_lost", "stopped"]


async def test_a_disagreement_that_comes_back_after_streaming_is_told_again(
    told: list[MutableMapping[str, Any]],
) -> None:
    running = Running((False, moved()), (True, moved()), (False, moved()))

    await running.looks(6)
    await running.stopped()

    assert len(named(told, "giving_up")) == 2


@pytest.mark.parametrize(
    "passing",
    [
        SlotBusy("relay runs already: pid 7"),
        ServerUnavailable(),
        SinkUnavailable(),
        StreamLost(),
        # Secrets rotate, beside a parked relay too.
        AuthenticationRefused(),
    ],
)
async def test_what_may_pass_is_no_news_of_a_parked_relay(
    passing: Exception, told: list[MutableMapping[str, Any]]
) -> None:
    """An operator's command has the lock meanwhile; a server restarts."""
    running = Running((False, moved()), *[(False, passing)] * 5, (False, moved()))

    await running.looks(12)

    assert running.subject.state is State.POSITION_MISMATCH
    assert running.subject.reason == str(moved())
    assert isinstance(running.subject.failure, Disagreement)
    assert await running.stopped() is ExitCode.OPERATOR
    assert [line["event"] for line in told] == ["giving_up", "state", "state"]


async def test_a_parked_relay_ends_when_a_requirement_is_not_met_any_more() -> None:
    running = Running((False, moved()), (False, RequirementMissing("no publication")))

    assert await running.task is ExitCode.REQUIREMENT
    assert running.subject.reason == "no publication"


class Recovery:
    """Answers a lost slot with attempts of its own, as they are told to end."""

    def __init__(self, *ends: Exception | None, waits: bool = False) -> None:
        self.ends = list(ends)
        self.waits = waits
        self.answered: list[Exception] = []
        self.attempts: list[Recovering] = []

    def __call__(self, exc: Exception) -> Attempt | None:
        if not isinstance(exc, SlotGone) or not self.ends:
            return None
        self.answered.append(exc)
        self.attempts.append(Recovering(self.ends.pop(0), waits=self.waits))
        return self.attempts[-1]


class Recovering(Attempt):
    def __init__(self, end: Exception | None, *, waits: bool) -> None:
        super().__init__(False, end, lambda: None)  # noqa: FBT003 - does not stream
        self.has_run = False
        self.is_stopped = False
        if not waits:
            self._stopped.set()

    async def run(self) -> None:
        self.has_run = True
        await super().run()

    def stop(self) -> None:
        self.is_stopped = True
        super().stop()


async def test_a_loss_that_may_be_answered_is_and_a_session_follows(
    told: list[MutableMapping[str, Any]],
) -> None:
    recovery, lost = Recovery(None), gone()
    running = Running((True, lost), STREAMS, recovery=recovery)

    await running.looks(2)
    await running.comes_to(State.STREAMING)

    assert recovery.answered == [lost]
    assert recovery.attempts[0].has_run
    assert states(told) == ["streaming", "resnapshot", "starting", "streaming"]
    assert [line["reason"] for line in named(told, "recovering")] == ["slot is lost"]
    assert named(told, "giving_up") == []
    assert await running.stopped() is ExitCode.CLEAN


async def test_while_it_recovers_it_says_what_for() -> None:
    running = Running((True, gone()), recovery=Recovery(None, waits=True))

    await running.comes_to(State.RESNAPSHOT)
    assert running.subject.reason == "slot is lost"

    assert await running.stopped() is ExitCode.CLEAN


async def test_what_may_not_be_answered_again_is_for_an_operator() -> None:
    recovery = Recovery(None)
    running = Running((True, gone()), (False, gone()), recovery=recovery)

    await running.comes_to(State.SLOT_LOST)

    assert len(recovery.answered) == 1
    assert await running.stopped() is ExitCode.OPERATOR


async def test_a_recovery_that_fails_in_passing_is_paused_for_and_asked_for_again(
    told: list[MutableMapping[str, Any]],
) -> None:
    recovery = Recovery(ServerUnavailable("away"), None)
    running = Running((True, gone()), (False, gone()), STREAMS, recovery=recovery)

    await running.looks(3)
    await running.comes_to(State.STREAMING)

    assert len(recovery.answered) == 2
    assert states(told) == [
        "streaming",
        "resnapshot",
        "retrying",
        "starting",
        "resnapshot",
        "starting",
        "streaming",
    ]
    assert await running.stopped() is ExitCode.CLEAN


async def test_a_recovery_that_needs_an_operator_parks() -> None:
    history = OperatorNeeded("on another history")
    running = Running((True, gone()), (False, history), recovery=Recovery(history))

    await running.comes_to(State.PARKED)

    assert running.subject.reason == "on another history"
    assert await running.stopped() is ExitCode.OPERATOR


async def test_a_recovery_beside_another_relay_waits_for_it() -> None:
    recovery = Recovery(SlotBusy("relay runs already: pid 7"))
    running = Running((True, gone()), STREAMS, recovery=recovery)

    await running.looks(2)
    await running.comes_to(State.STREAMING)

    assert await running.stopped() is ExitCode.CLEAN


async def test_a_parked_relay_may_recover_by_itself_too(
    told: list[MutableMapping[str, Any]],
) -> None:
    """What it finds when it looks again may be what the settings have an answer for."""
    recovery = Recovery(None)
    running = Running((False, moved()), (False, gone()), STREAMS, recovery=recovery)

    await running.comes_to(State.STREAMING)

    assert len(recovery.answered) == 1
    assert states(told) == ["position_mismatch", "resnapshot", "starting", "streaming"]
    assert await running.stopped() is ExitCode.CLEAN


async def test_a_stop_lets_a_recovery_end_in_order() -> None:
    recovery = Recovery(None, waits=True)
    running = Running((True, gone()), recovery=recovery)
    await running.comes_to(State.RESNAPSHOT)
    await eventually(lambda: recovery.attempts[0].has_run)

    running.subject.stop()
    assert running.subject.state is State.DRAINING

    assert await running.task is ExitCode.CLEAN
    assert recovery.attempts[0].is_stopped
    assert running.script.count == 1


async def test_a_stop_ends_with_the_code_of_what_goes_wrong_while_it_drains() -> None:
    class Unknown(Attempt):
        async def run(self) -> None:
            self._started()
            await self._stopped.wait()
            raise CdcError("no way")

    subject = Supervisor(
        lambda started: Unknown(True, None, started),  # noqa: FBT003 - streams
        PARKS,
        RelayMetrics(),
    )
    run = asyncio.create_task(subject.run())
    await eventually(lambda: subject.state is State.STREAMING)

    subject.stop()

    assert await run is ExitCode.FAILED
