"""How the tests' Kafka asks who is there: SASL and TLS listeners and their users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.local import Listener

if TYPE_CHECKING:
    from pathlib import Path

    from tests.certificates import Certificate

USER = "relay"
PASSWORD = "correct horse"  # noqa: S105 - of a broker that lives for one test run

LISTENERS = {
    "SASL": Listener(protocol="SASL_PLAINTEXT"),
    "TLS": Listener(protocol="SSL"),
    "SASLTLS": Listener(protocol="SASL_SSL"),
}
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """Where to go and what to show there.

    Attributes:
        sasl: address of SASL_PLAINTEXT: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and
            OAUTHBEARER (unsigned tokens).
        tls: address of SSL without client certificates.
        sasl_tls: address of SASL_SSL: the same mechanisms.
        ca_file: the authority of the broker's certificate.

    """

    sasl: str
    tls: str
    sasl_tls: str
    ca_file: Path
    user: str = USER
    password: str = PASSWORD


def security_properties(certificate: Certificate) -> dict[str, str]:
    """Return the properties of a broker with these listeners."""
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.chain,
        "ssl.keystore.key": certificate.key,
    }
    for listener in ("sasl", "sasltls"):
        prefix = f"listener.name.{listener}"
        properties |= {
            f"{prefix}.sasl.enabled.mechanisms": (
                "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
            ),
            f"{prefix}.plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            f"{prefix}.oauthbearer.sasl.jaas.config": (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
        }
        for bits in (256, 512):
            properties[f"{prefix}.scram-sha-{bits}.sasl.jaas.config"] = (
                f"{_MODULES}.scram.ScramLoginModule required;"
            )
    return properties
