"""The HTTP endpoint, asked over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from slots import endpoint
from slots.endpoint import Endpoint, parse_listen
from slots.errors import BadListenAddress
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Told:
    """What the endpoint is told to say; tests change it."""

    def __init__(self) -> None:
        self.ready = (True, "streaming")
        self.status: Any = {"state": "streaming"}

    def failing(self) -> dict[str, object]:
        if self.status is None:
            raise RuntimeError("s3cr3t")
        return dict(self.status)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def served(told: Told) -> AsyncIterator[Endpoint]:
    registry = CollectorRegistry()
    Gauge("walferry_try", "A try", registry=registry).set(7)
    async with Endpoint(
        "127.0.0.1:0",
        registry=registry,
        ready=lambda: told.ready,
        status=told.failing,
    ) as running:
        yield running


@contextlib.asynccontextmanager
async def dialled(
    served: Endpoint,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*served.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(served: Endpoint, request: bytes) -> tuple[int, dict[str, str], str]:
    async with dialled(served) as (reader, writer), asyncio.timeout(20):
        writer.write(request)
        raw = await reader.read()
    head, _, body = raw.decode().partition("\r\n\r\n")
    lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


async def get(served: Endpoint, path: str) -> tuple[int, dict[str, str], str]:
    return await ask(served, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_livez_says_200_whatever_the_state(served: Endpoint, told: Told) -> None:
    told.ready = (False, "the server is away")

    assert (await get(served, "/livez"))[0] == 200


async def test_readyz_says_whether_and_why(served: Endpoint, told: Told) -> None:
    assert (await get(served, "/readyz"))[::2] == (200, "streaming\n")

    told.ready = (False, "waiting for slot a")

    assert (await get(served, "/readyz"))[::2] == (503, "waiting for slot a\n")


async def test_metrics_are_prometheus_text(served: Endpoint) -> None:
    code, headers, body = await get(served, "/metrics?name[]=x")

    assert code == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "walferry_try 7.0" in body


async def test_status_is_json_with_a_schema_version(served: Endpoint) -> None:
    code, headers, body = await get(served, "/status")

    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"schema_version": 1, "state": "streaming"}


async def test_head_has_the_length_and_no_body(served: Endpoint) -> None:
    code, headers, body = await ask(served, b"HEAD /livez HTTP/1.1\r\n\r\n")

    assert (code, headers["Content-Length"], body) == (200, "6", "")


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\x00\r\n\r\n", 400),
        (b"GET /livez HTTP/2\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
async def test_a_bad_request_is_told_so(
    served: Endpoint, request_bytes: bytes, code: int
) -> None:
    assert (await ask(served, request_bytes))[0] == code
    assert (await get(served, "/livez"))[0] == 200


async def test_a_client_that_never_finishes_is_let_go(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_HEAD_LIMIT_S", 0.1)

    assert (await ask(served, b"GET /livez HT"))[0] == 408


async def test_connections_are_bounded_and_come_free_again(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CONNECTION_LIMIT", 2)

    async def says(code: int) -> bool:
        return (await get(served, "/livez"))[0] == code

    async with dialled(served), dialled(served):
        await eventually(lambda: says(503))
    await eventually(lambda: says(200))


async def test_a_failing_status_is_a_500_that_tells_nothing(
    served: Endpoint, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    told.status = None

    code, _, body = await get(served, "/status")

    assert code == 500
    assert "s3cr3t" not in body + "".join(capsys.readouterr())
    assert (await get(served, "/livez"))[0] == 200


async def test_leaving_ends_open_connections(served: Endpoint) -> None:
    async with dialled(served) as (reader, _), asyncio.timeout(5):
        await get(served, "/livez")

        await served.__aexit__(None, None, None)

        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_taken_address_is_one_line_with_the_remedy(served: Endpoint) -> None:
    host, port = served.address
    second = Endpoint(
        f"{host}:{port}",
        registry=CollectorRegistry(),
        ready=lambda: (True, ""),
        status=dict,
    )

    with pytest.raises(BadListenAddress, match=f"127.0.0.1:{port}: .*in use") as caught:
        await second.__aenter__()

    assert "\n" not in str(caught.value)
    assert "another" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),  # noqa: S104 - said, so meant
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_loopback_unless_it_says_otherwise(
    text: str, address: tuple[str, int]
) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", "8080", "host", "::1:8080", "a:99999", "a:b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadListenAddress):
        parse_listen(text)
