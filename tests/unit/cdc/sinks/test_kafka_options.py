from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import AuthenticationFailedError
from pydantic import SecretStr

from cdc.errors import SettingsError
from cdc.sinks import kafka_options
from cdc.sinks.kafka_options import KafkaOptions, client_arguments, producer_arguments
from tests.certificates import make_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "s3cr3t-Ä/@:%"  # noqa: S105 - of nobody


def options(**changes: Any) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers="host:9092", **changes)


PROVIDER = "tokens_of_a_test:provide"


@pytest.fixture
def provider() -> Iterator[Callable[[Any], Any]]:
    """Make a callable importable, and return what aiokafka would ask for tokens."""
    module = types.ModuleType("tokens_of_a_test")
    sys.modules[module.__name__] = module

    def tokens(provide: Any) -> Any:
        module.__dict__["provide"] = provide
        return client_arguments(
            options(
                security_protocol="SASL_SSL",
                sasl_mechanism="OAUTHBEARER",
                sasl_token_provider=PROVIDER,
            )
        )["sasl_oauth_token_provider"]

    yield tokens
    del sys.modules[module.__name__]


def test_the_producer_is_idempotent_and_waits_for_all_replicas() -> None:
    arguments = producer_arguments(options())

    assert arguments["enable_idempotence"] is True
    assert arguments["acks"] == "all"
    assert arguments["linger_ms"] == 0


def test_a_codec_whose_library_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(kafka_options._CODECS, "zstd", lambda: False)

    with pytest.raises(SettingsError, match="zstd") as wrong:
        producer_arguments(options(compression="zstd"))

    assert "walferry[compression]" in wrong.value.hint


def test_secrets_are_in_no_text_of_the_options() -> None:
    given = options(
        sasl_username="relay",
        sasl_password=SecretStr(SECRET),
        ssl_key_password=SecretStr(SECRET),
    )

    assert SECRET not in repr(given)
    assert SECRET not in str(given)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_mechanism_wants_a_user_and_a_password(mechanism: Any) -> None:
    with pytest.raises(SettingsError, match=mechanism):
        client_arguments(
            options(security_protocol="SASL_SSL", sasl_mechanism=mechanism)
        )


def test_a_missing_authority_is_named_with_its_setting_and_path(tmp_path: Path) -> None:
    path = tmp_path / "no-such.pem"

    with pytest.raises(SettingsError, match="CDC_KAFKA__SSL__CAFILE") as wrong:
        client_arguments(options(security_protocol="SSL", ssl_cafile=path))

    assert str(path) in str(wrong.value)


def test_a_locked_key_is_an_error_and_not_a_question_at_the_terminal(
    tmp_path: Path,
) -> None:
    certificate = make_certificate(tmp_path)
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", str(tmp_path / "server.key"), "-out",
         str(locked), "-passout", f"pass:{SECRET}"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    given: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_certfile": certificate.ca_file,
        "ssl_keyfile": locked,
    }

    for password in (None, SecretStr("wrong")):
        with pytest.raises(SettingsError, match="KEY_PASSWORD"):
            client_arguments(options(**given, ssl_key_password=password))
    client_arguments(options(**given, ssl_key_password=SecretStr(SECRET)))


@pytest.mark.parametrize("checks", [True, False])
def test_the_certificate_is_always_verified_the_name_on_demand(
    tmp_path: Path,
    checks: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    authority = make_certificate(tmp_path).ca_file

    context = client_arguments(
        options(
            security_protocol="SSL", ssl_cafile=authority, ssl_check_hostname=checks
        )
    )["ssl_context"]

    assert context.check_hostname is checks
    assert context.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize(
    "name", ["", "json", "no_such_module:f", "json:no_such", "json:__doc__", ":f"]
)
def test_a_token_provider_that_cannot_be_used_is_a_settings_error(name: str) -> None:
    with pytest.raises(SettingsError, match="TOKEN_PROVIDER"):
        client_arguments(
            options(
                security_protocol="SASL_SSL",
                sasl_mechanism="OAUTHBEARER",
                sasl_token_provider=name,
            )
        )


async def test_a_plain_token_provider_does_not_stop_the_event_loop(
    provider: Callable[[Any], Any],
) -> None:
    loop_goes_on = threading.Event()
    asyncio.get_running_loop().call_soon(loop_goes_on.set)

    given = await provider(lambda: "a" if loop_goes_on.wait(5) else "b").token()

    assert given == "a"


async def test_an_async_token_provider_is_awaited(
    provider: Callable[[Any], Any],
) -> None:
    async def provide() -> str:
        await asyncio.sleep(0)
        return "token"

    assert await provider(provide).token() == "token"
    assert await provider(lambda: provide()).token() == "token"  # noqa: PLW0108


async def test_a_failing_token_provider_is_named_without_what_it_said(
    provider: Callable[[Any], Any],
) -> None:
    def provide() -> str:
        raise ValueError(SECRET)

    with pytest.raises(AuthenticationFailedError, match="tokens_of_a_test") as failed:
        await provider(provide).token()

    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__
