"""Getting in: every mechanism; who is kept out is told why, without a secret."""

from __future__ import annotations

import base64
import json
import sys
import time
import types
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from cdc.errors import CdcError, SinkDenied, SinkUnavailable
from cdc.finding import Status
from cdc.sinks.kafka import KafkaSink
from tests.certificates import make_certificate
from tests.kafka_events import batch, entered, event, options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka_records import Topics
    from tests.kafka_security import KafkaSecurity

pytestmark = pytest.mark.kafka

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
WRONG = "wr0ng-Ä/@:%"


def unsigned_token(*, lasts_s: int) -> str:
    # One issued in the broker's present millisecond may count as of the future.
    issued = int(time.time()) - 60
    claims = {"sub": "relay", "iat": issued, "exp": issued + lasts_s}
    parts = [{"alg": "none"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
    return ".".join(part.decode().rstrip("=") for part in encoded) + "."


@pytest.fixture
def token_provider() -> Iterator[str]:
    """A provider of tokens that the broker takes because they are not signed."""
    module = types.ModuleType("unsigned_tokens")
    module.__dict__["provide"] = lambda: unsigned_token(lasts_s=600)
    sys.modules[module.__name__] = module
    yield "unsigned_tokens:provide"
    del sys.modules[module.__name__]


async def carries(sink: KafkaSink, topics: Topics, topic: str) -> None:
    await topics.create(topic)
    async with entered(sink):
        await (await sink.publish(batch(event(topic))))
    assert len(await topics.read(topic, 1)) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_password_lets_in(
    kafka_security: KafkaSecurity, topics: Topics, topic: str, mechanism: str
) -> None:
    sink = KafkaSink(
        options(
            kafka_security.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=kafka_security.user,
            sasl_password=SecretStr(kafka_security.password),
        )
    )
    await carries(sink, topics, topic)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_denied_and_told_nowhere(
    kafka_security: KafkaSecurity,
    mechanism: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    sink = KafkaSink(
        options(
            kafka_security.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=kafka_security.user,
            sasl_password=SecretStr(WRONG),
        )
    )

    with pytest.raises(SinkDenied, match=kafka_security.sasl) as denied:
        await sink.__aenter__()
    findings = await sink.check([])

    assert [(one.name, one.status) for one in findings] == [
        ("kafka.credentials", Status.FAILURE)
    ]
    said = str(denied.value) + denied.value.hint + repr(findings) + caplog.text
    assert WRONG not in said
    assert base64.b64encode(WRONG.encode()).decode() not in said


async def test_a_token_lets_in(
    kafka_security: KafkaSecurity, topics: Topics, topic: str, token_provider: str
) -> None:
    sink = KafkaSink(
        options(
            kafka_security.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=token_provider,
        )
    )
    await carries(sink, topics, topic)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("not a token", "OAUTHBEARER"),
        # This refusal comes without an error code, and the library overlooks it.
        (unsigned_token(lasts_s=1), "the token is refused"),
    ],
)
async def test_a_token_that_is_none_or_has_expired_is_denied(
    kafka_security: KafkaSecurity, token_provider: str, token: str, reason: str
) -> None:
    sys.modules["unsigned_tokens"].__dict__["provide"] = lambda: token
    sink = KafkaSink(
        options(
            kafka_security.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=token_provider,
        )
    )

    with pytest.raises(SinkDenied, match=reason) as denied:
        await sink.__aenter__()
    assert token not in str(denied.value)


async def test_tls_lets_in_alone_and_with_a_password(
    kafka_security: KafkaSecurity, topics: Topics, topic: str
) -> None:
    tls = {"ssl_cafile": kafka_security.ca_file}
    await carries(
        KafkaSink(options(kafka_security.tls, security_protocol="SSL", **tls)),
        topics,
        f"{topic}.tls",
    )
    sink = KafkaSink(
        options(
            kafka_security.sasl_tls,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=kafka_security.user,
            sasl_password=SecretStr(kafka_security.password),
            **tls,
        )
    )
    await carries(sink, topics, f"{topic}.both")


async def test_a_certificate_of_an_unknown_authority_is_denied(
    kafka_security: KafkaSecurity, tmp_path: Path
) -> None:
    stranger = make_certificate(tmp_path).ca_file
    sink = KafkaSink(
        options(kafka_security.tls, security_protocol="SSL", ssl_cafile=stranger)
    )

    with pytest.raises(SinkDenied, match="certificate"):
        await sink.__aenter__()


@pytest.mark.parametrize(
    ("listener", "protocol"), [("sasl", "PLAINTEXT"), ("tls", "PLAINTEXT")]
)
async def test_the_wrong_protocol_fails_in_time_and_names_the_address(
    kafka_security: KafkaSecurity, listener: str, protocol: str
) -> None:
    address = getattr(kafka_security, listener)
    sink = KafkaSink(options(address, security_protocol=protocol, start_timeout_s=3.0))

    with pytest.raises(CdcError, match=address) as refused:
        await sink.__aenter__()

    assert isinstance(refused.value, SinkUnavailable)
    assert "CDC_KAFKA__SECURITY_PROTOCOL" in refused.value.hint


async def test_tls_to_a_plain_listener_is_told_as_that(
    kafka: Any, kafka_security: KafkaSecurity
) -> None:
    sink = KafkaSink(
        options(
            kafka.bootstrap_servers,
            security_protocol="SSL",
            ssl_cafile=kafka_security.ca_file,
            start_timeout_s=3.0,
        )
    )

    with pytest.raises(SinkUnavailable, match=kafka.bootstrap_servers) as refused:
        await sink.__aenter__()
    assert "CDC_KAFKA__SECURITY_PROTOCOL" in refused.value.hint
