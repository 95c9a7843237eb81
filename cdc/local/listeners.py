"""The listeners of a local Kafka: what it offers to whom, and on which port.

The plain one and the controller's are always there. More of them are for tests of
SASL and TLS, and for proxies: a client of Kafka goes where the *advertised* address
sends it, so a proxy must be what the broker advertises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.local.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "PLAIN"
CONTROLLER = "CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One further listener.

    Attributes:
        protocol: PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL.
        advertised_port: where clients are sent instead of to the broker itself.

    """

    protocol: str = "PLAINTEXT"
    advertised_port: int | None = None


def listener_properties(
    ports: Mapping[str, int], extra: Mapping[str, Listener]
) -> dict[str, str]:
    """Return the broker's properties for listeners on these ports.

    Args:
        ports: by listener name, ``PLAIN`` and ``CONTROLLER`` among them.
        extra: the further listeners, by name.

    """
    listeners = {PLAIN: Listener(), **extra}
    advertised = {
        name: listener.advertised_port or ports[name]
        for name, listener in listeners.items()
    }
    protocols = {name: listener.protocol for name, listener in listeners.items()}
    return {
        "listeners": _addresses({**ports}),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {**protocols, CONTROLLER: "PLAINTEXT"}.items()
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAIN,
    }


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
