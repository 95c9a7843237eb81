"""The tests' Kafka lets in whom it should, and nobody else."""

from __future__ import annotations

import base64
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

if TYPE_CHECKING:
    from tests.kafka_records import Topics
    from tests.kafka_security import KafkaSecurity

pytestmark = pytest.mark.kafka


class UnsignedToken(AbstractTokenProvider):  # type: ignore[misc] # it has no types
    async def token(self) -> str:
        now = time.time()
        claims = {"sub": "relay", "iat": now, "exp": now + 600}
        parts = ({"alg": "none"}, claims)
        encoded = (base64.urlsafe_b64encode(json.dumps(p).encode()) for p in parts)
        return ".".join(part.decode().rstrip("=") for part in encoded) + "."


async def send(topic: str, **options: Any) -> None:
    producer = AIOKafkaProducer(**options)
    try:  # its context manager does not stop what failed to start
        await producer.start()
        await producer.send_and_wait(topic, b"let in")
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_lets_in_and_a_wrong_one_does_not(
    kafka_security: KafkaSecurity, topics: Topics, topic: str, mechanism: str
) -> None:
    await topics.create(topic)
    options = {
        "bootstrap_servers": kafka_security.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": kafka_security.user,
    }
    await send(topic, **options, sasl_plain_password=kafka_security.password)
    with pytest.raises(KafkaError):
        await send(topic, **options, sasl_plain_password=kafka_security.user)

    assert len(await topics.read_to_end(topic)) == 1


async def test_a_token_lets_in(
    kafka_security: KafkaSecurity, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    await send(
        topic,
        bootstrap_servers=kafka_security.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=UnsignedToken(),
    )


async def test_tls_lets_in_who_knows_the_authority_and_keeps_out_who_does_not(
    kafka_security: KafkaSecurity, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    known = create_ssl_context(cafile=str(kafka_security.ca_file))
    address = {
        "bootstrap_servers": kafka_security.tls,
        "security_protocol": "SSL",
    }
    await send(topic, **address, ssl_context=known)
    with pytest.raises(KafkaError):
        await send(topic, **address, ssl_context=ssl.create_default_context())


async def test_a_password_goes_over_tls(
    kafka_security: KafkaSecurity, topics: Topics, topic: str
) -> None:
    await topics.create(topic)
    await send(
        topic,
        bootstrap_servers=kafka_security.sasl_tls,
        security_protocol="SASL_SSL",
        ssl_context=create_ssl_context(cafile=str(kafka_security.ca_file)),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=kafka_security.user,
        sasl_plain_password=kafka_security.password,
    )
