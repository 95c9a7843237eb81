"""HTTP for probes and scrapers: /livez, /readyz, /metrics and /status.

Answers GET and HEAD, one request a connection, and knows no other verb, no body and no
route besides these four. Loopback only, unless an address says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from slots.errors import BadListenAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from prometheus_client import CollectorRegistry

SCHEMA_VERSION: Final = 1
"""Of the /status document; raised when a key changes its meaning or goes away."""

_LOOPBACK: Final = "127.0.0.1"
_HEAD_LIMIT_BYTES: Final = 8 << 10
_HEAD_LIMIT_S: Final = 5.0
_WRITE_LIMIT_S: Final = 10.0
_CONNECTION_LIMIT: Final = 64
_PORT_LIMIT: Final = 1 << 16
_REQUEST_WORDS: Final = 3
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"

_log = structlog.get_logger("slots.endpoint")


def parse_listen(text: str) -> tuple[str, int]:
    """Read ``host:port``, ``[v6]:port`` or ``:port``; the last is loopback only.

    Raises:
        BadListenAddress: it is something else.

    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise BadListenAddress(f"{text!r} is no address to listen on")
    if int(port) >= _PORT_LIMIT:
        raise BadListenAddress(f"port {port} in {text!r} is beyond {_PORT_LIMIT - 1}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadListenAddress(
            f"{text!r} is no address to listen on", hint="write IPv6 as [::1]:8080"
        )
    return host or _LOOPBACK, int(port)


class Endpoint:
    """Listens while entered.

    Args:
        listen: see :func:`parse_listen`; port 0 means any free port.
        registry: what /metrics prints.
        ready: whether /readyz says 200, and why (not).
        status: what /status says besides its schema version.

    """

    def __init__(
        self,
        listen: str,
        *,
        registry: CollectorRegistry,
        ready: Callable[[], tuple[bool, str]],
        status: Callable[[], Mapping[str, object]],
    ) -> None:
        self._listen = listen
        self._wanted = parse_listen(listen)
        self._registry = registry
        self._ready = ready
        self._status = status
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port is known once entered."""
        if self._server is None:
            return self._wanted
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def __aenter__(self) -> Self:
        host, port = self._wanted
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=_HEAD_LIMIT_BYTES
            )
        except OSError as exc:
            # asyncio's text is the address again; gaierror's strerror is the reason.
            reason = exc.strerror or type(exc).__name__
            raise BadListenAddress(
                f"cannot listen on {self._listen}: {reason.lower()}"
            ) from exc
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("asyncio serves a connection in a task")
        self._tasks.add(task)
        try:
            await self._exchange(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone, too slow, or we are leaving
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._tasks) > _CONNECTION_LIMIT:
            reply = _reply(503, "too many connections\n")
        else:
            reply = await self._request(reader)
        async with asyncio.timeout(_WRITE_LIMIT_S):
            writer.write(reply)
            await writer.drain()
            writer.write_eof()
            # What the client still has to say is taken off its hands: closing with
            # unread bytes resets the connection and may eat our answer.
            with contextlib.suppress(ConnectionError):
                await reader.read(_HEAD_LIMIT_BYTES)

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(_HEAD_LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _reply(431, "the request is too long\n")
        except asyncio.IncompleteReadError:
            return _reply(400, "not an HTTP request\n")
        except TimeoutError:
            return _reply(408, "the request took too long\n")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != _REQUEST_WORDS or not words[2].startswith("HTTP/1."):
            return _reply(400, "not an HTTP request\n")
        verb, path = words[0], words[1].partition("?")[0]
        if verb not in {"GET", "HEAD"}:
            return _reply(405, "only GET\n")
        reply = self._answer(path)
        return (
            reply.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if verb == "HEAD" else reply
        )

    def _answer(self, path: str) -> bytes:
        routes = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/status": self._status_document,
        }
        route = routes.get(path)
        if route is None:
            return _reply(404, f"only {', '.join(routes)}\n")
        try:
            return route()
        except Exception as exc:  # noqa: BLE001 - whoever answers must not end us
            # Neither text nor traceback: who knows what the callee holds.
            _log.error("endpoint_failed", path=path, error=type(exc).__name__)
            return _reply(500, "an error of ours; the log has it\n")

    def _livez(self) -> bytes:
        return _reply(200, "alive\n")

    def _readyz(self) -> bytes:
        is_ready, reason = self._ready()
        return _reply(200 if is_ready else 503, f"{reason}\n")

    def _metrics(self) -> bytes:
        return _reply(200, generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4)

    def _status_document(self) -> bytes:
        document = {"schema_version": SCHEMA_VERSION, **self._status()}
        return _reply(200, json.dumps(document, default=str) + "\n", _JSON)


def _reply(code: int, body: str | bytes, kind: str = _TEXT) -> bytes:
    payload = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {code} {http.HTTPStatus(code).phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(payload)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + payload
