"""Ports on loopback that stay ours from choosing to closing.

Asking the kernel for "any free port" hands out a port of the ephemeral range, which
the next outgoing connection of anybody may take as its own while our server is being
restarted. So ports are chosen below that range, and a lease keeps other launchers on
this machine off for as long as it lives.
"""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Self

LOOPBACK = "127.0.0.1"
# Above the well-known services, below Linux' ephemeral range (32768 and up).
_RANGE = range(20_000, 32_000)


class PortLease:
    """A TCP port on loopback that nobody else listens on.

    The lease is a UDP socket on the same number: it does not hinder the TCP server
    that will listen there, two launchers cannot both have it, and the kernel drops it
    with the process.
    """

    def __init__(self) -> None:
        for port in SystemRandom().sample(_RANGE, 500):
            mark = _leave_mark(port)
            if mark is None:
                continue
            if _is_free(port):
                self.port = port
                self._mark = mark
                return
            mark.close()
        raise OSError(f"no free port on {LOOPBACK} among 500 tried")

    def release(self) -> None:
        """Give the port up; harmless when repeated."""
        self._mark.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def is_listening(port: int) -> bool:
    """Tell whether somebody accepts connections on this port of loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _leave_mark(port: int) -> socket.socket | None:
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind((LOOPBACK, port))
    except OSError:
        mark.close()
        return None
    return mark


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
