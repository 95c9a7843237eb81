from __future__ import annotations

from cdc.local.listeners import Listener, listener_properties


def test_clients_are_sent_to_what_is_advertised() -> None:
    properties = listener_properties(
        {"PLAIN": 1, "CONTROLLER": 2, "SASL": 3, "PROXIED": 4},
        {
            "SASL": Listener(protocol="SASL_SSL"),
            "PROXIED": Listener(advertised_port=9),
        },
    )
    assert properties["listeners"] == (
        "PLAIN://127.0.0.1:1,CONTROLLER://127.0.0.1:2,"
        "SASL://127.0.0.1:3,PROXIED://127.0.0.1:4"
    )
    assert properties["advertised.listeners"] == (
        "PLAIN://127.0.0.1:1,SASL://127.0.0.1:3,PROXIED://127.0.0.1:9"
    )
    assert properties["listener.security.protocol.map"] == (
        "PLAIN:PLAINTEXT,SASL:SASL_SSL,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
