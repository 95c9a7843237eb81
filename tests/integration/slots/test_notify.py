"""Webhooks, told over HTTP: once, in order, and never in the watch's way."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from slots import notify
from slots.alarms import Alarm, AlarmState, Change
from slots.errors import BadWebhook
from slots.notify import AlarmLog, Webhook, sentence
from slots.state import Kind, Level
from tests.slot_readings import at
from tests.waiting import eventually
from tests.webhook_receiver import WebhookReceiver

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "db:5432/shop as ops"
SECRET = "s3cr3t-token"  # noqa: S105 - a test's


def change(
    state: AlarmState = AlarmState.RAISED,
    level: Level = Level.CRITICAL,
    name: str = "orders",
) -> Change:
    alarm = Alarm(
        kind=Kind.LAG,
        level=level,
        slot_name=name,
        slot_type="logical",
        database="shop",
        text="6 GB behind",
        remedy="look at the consumer",
        since=at(0),
    )
    return Change(state=state, alarm=alarm, was=Level.OK, at=at(5))


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver(SECRET).serving() as running:
        yield running


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "RETRY_DELAYS_S", (0.01, 0.01))


async def test_a_change_arrives_as_one_body_with_a_text(
    receiver: WebhookReceiver,
) -> None:
    async with Webhook(SecretStr(receiver.url)) as webhook:
        webhook.tell(change(), SERVER)

    (body,) = receiver.bodies
    assert body == {
        "text": "CRITICAL lag: slot orders at db:5432/shop as ops: 6 GB behind."
        " look at the consumer",
        "state": "raised",
        "alarm": "lag",
        "level": "critical",
        "was": "ok",
        "server": SERVER,
        "slot_name": "orders",
        "slot_type": "logical",
        "database": "shop",
        "detail": "6 GB behind",
        "remedy": "look at the consumer",
        "since": "2026-12-01T12:00:00+00:00",
        "at": "2026-12-01T12:00:05+00:00",
    }


async def test_changes_arrive_in_order(receiver: WebhookReceiver) -> None:
    async with Webhook(SecretStr(receiver.url)) as webhook:
        for number in range(5):
            webhook.tell(change(name=f"s{number}"), SERVER)

    assert [body["slot_name"] for body in receiver.bodies] == [
        "s0",
        "s1",
        "s2",
        "s3",
        "s4",
    ]


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_a_failure_that_may_pass_is_tried_again(
    receiver: WebhookReceiver, code: int
) -> None:
    receiver.answers = [code, code]

    async with Webhook(SecretStr(receiver.url)) as webhook:
        webhook.tell(change(), SERVER)

    assert len(receiver.bodies) == 3
    assert webhook.failed == 0


@pytest.mark.parametrize(("code", "tries"), [(404, 1), (302, 1), (500, 3)])
async def test_a_failure_is_given_up_after_bounded_tries(
    receiver: WebhookReceiver,
    code: int,
    tries: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    receiver.answers = [code] * 10

    async with Webhook(SecretStr(receiver.url)) as webhook:
        webhook.tell(change(), SERVER)

    assert len(receiver.bodies) == tries
    assert webhook.failed == 1
    assert SECRET not in "".join(capsys.readouterr())


async def test_a_webhook_that_is_away_is_counted_without_its_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Webhook(SecretStr(f"http://127.0.0.1:1/{SECRET}")) as webhook:
        webhook.tell(change(), SERVER)

    assert webhook.failed == 1
    shown = "".join(capsys.readouterr())
    assert "127.0.0.1" in shown
    assert SECRET not in shown + repr(webhook.__dict__)


async def test_a_slow_webhook_holds_nobody_up_and_drops_what_is_too_much(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LEAVE_S", 0.05)
    receiver.gate.clear()

    async with Webhook(SecretStr(receiver.url)) as webhook:
        begun = time.monotonic()
        for _ in range(notify.QUEUE_LIMIT + 10):
            webhook.tell(change(), SERVER)
        assert time.monotonic() - begun < 1
        assert webhook.failed == 10
        receiver.gate.set()


async def test_leaving_waits_for_what_is_still_to_be_told(
    receiver: WebhookReceiver,
) -> None:
    async with Webhook(SecretStr(receiver.url)) as webhook:
        for _ in range(20):
            webhook.tell(change(), SERVER)

    await eventually(lambda: len(receiver.bodies) == 20)


async def test_what_answers_nonsense_is_tried_again_and_its_words_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SECRET.encode() + b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Webhook(SecretStr(f"http://127.0.0.1:{port}/")) as webhook:
        webhook.tell(change(), SERVER)

    assert webhook.failed == 1
    assert SECRET not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", f"ftp://h/{SECRET}", "http://", SECRET]
)
def test_what_is_no_http_address_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(BadWebhook) as caught:
        Webhook(SecretStr(url))

    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_a_cleared_alarm_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    cleared = change(AlarmState.CLEARED)

    assert sentence(cleared, SERVER) == f"CLEARED lag: slot orders at {SERVER}"
    assert "replication slots at" in sentence(change(name=""), SERVER)
    log = AlarmLog()
    log.tell(cleared, SERVER)
    log.tell(change(), SERVER)
    log.tell(change(level=Level.WARNING), SERVER)
    said = "".join(capsys.readouterr())
    assert said.count("alarm_raised") == 2
    assert said.count("alarm_cleared") == 1
