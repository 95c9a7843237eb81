"""An HTTP server that answers as told and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_GATE_LIMIT_S = 10.0


class WebhookReceiver:
    """Attributes tell and take what a test wants.

    Attributes:
        answers: status codes of the next answers; 200 beyond them.
        bodies: what was posted.
        gate: answers wait until it is set.
        url: where it listens, with a secret in the path.

    """

    def __init__(self, secret: str) -> None:
        self.answers: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.gate.wait(_GATE_LIMIT_S)
                receiver.bodies.append(json.loads(body))
                code = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(code)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/{secret}"

    @contextmanager
    def serving(self) -> Iterator[WebhookReceiver]:
        """Serve as long as the context lasts."""
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.gate.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()
