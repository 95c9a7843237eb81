"""How to reach a Kafka cluster, and how to treat it."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aiokafka.abc import AbstractTokenProvider
from aiokafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from aiokafka.helpers import create_ssl_context

from cdc.errors import SettingsError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from pydantic import SecretStr

Compression: TypeAlias = Literal["none", "gzip", "lz4", "snappy", "zstd"]
SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal[
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
]

_CODECS: Final = {
    "gzip": has_gzip,
    "lz4": has_lz4,
    "snappy": has_snappy,
    "zstd": has_zstd,
}
_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Everything about the cluster that a user may set.

    Attributes:
        bootstrap_servers: ``host:port``, comma-separated.
        client_id: shown in the broker's logs and quotas.
        required_topics: known before any row is read; they have to exist, unless
            topics may be made.
        max_request_bytes: a record above it is refused before it is sent.
        batch_bytes: records of one partition are sent together up to this size.
        request_timeout_s: one request to a broker.
        delivery_timeout_s: from handing over to an outcome; then it is unknown.
        start_timeout_s: connecting and the first metadata.
        close_timeout_s: leaving in order; then the producer is thrown away.
        create_topics: make a topic that a row names and that does not exist.
        topic_partitions: of topics we make.
        topic_replication: of topics we make; 0 means three, or as many as there are
            brokers.
        ssl_cafile: None means the system's certificate authorities.
        sasl_token_provider: ``module:callable``, sync or async, returns a token.

    """

    bootstrap_servers: str
    client_id: str = "walferry"
    required_topics: tuple[str, ...] = ()
    compression: Compression = "none"
    max_request_bytes: int = 1_048_576
    batch_bytes: int = 262_144
    request_timeout_s: float = 30.0
    delivery_timeout_s: float = 120.0
    start_timeout_s: float = 20.0
    close_timeout_s: float = 2.0
    create_topics: bool = False
    topic_partitions: int = 6
    topic_replication: int = 0
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_key_password: SecretStr | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    sasl_token_provider: str | None = None


def client_arguments(options: KafkaOptions) -> dict[str, Any]:
    """Return what every aiokafka client takes to get in.

    Raises SettingsError for a file that cannot be read or a token provider that cannot
    be loaded.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers,
        "client_id": options.client_id,
        "request_timeout_ms": int(options.request_timeout_s * _MS),
        "security_protocol": options.security_protocol,
    }
    if options.security_protocol in ("SSL", "SASL_SSL"):
        arguments["ssl_context"] = _ssl_context(options)
    if options.security_protocol.startswith("SASL_"):
        arguments["sasl_mechanism"] = options.sasl_mechanism
        if options.sasl_mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = _token_provider(options)
        else:
            arguments |= _user(options)
    return arguments


def producer_arguments(options: KafkaOptions) -> dict[str, Any]:
    """Return what our producer takes: idempotent, acknowledged by all, no linger."""
    codec = options.compression
    if codec != "none" and not _CODECS[codec]():
        raise SettingsError(
            f"CDC_KAFKA__COMPRESSION: the library for {codec} is not installed",
            hint="pip install 'walferry[compression]'",
        )
    return client_arguments(options) | {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 0,
        "compression_type": None if codec == "none" else codec,
        "max_batch_size": options.batch_bytes,
        # send_batch() does not look at it; our own limit is applied before.
        "max_request_size": options.max_request_bytes,
    }


def _ssl_context(options: KafkaOptions) -> ssl.SSLContext:
    password = options.ssl_key_password
    try:
        context: ssl.SSLContext = create_ssl_context(
            cafile=_text(options.ssl_cafile),
            certfile=_text(options.ssl_certfile),
            keyfile=_text(options.ssl_keyfile),
            password=None if password is None else password.get_secret_value(),
        )
    except OSError as exc:
        raise SettingsError(
            f"CDC_KAFKA__SSL: a certificate or key cannot be read:"
            f" {exc.strerror or type(exc).__name__}",
            hint="check CDC_KAFKA__SSL__CAFILE, __CERTFILE, __KEYFILE, __KEY_PASSWORD",
        ) from None
    context.check_hostname = options.ssl_check_hostname
    return context


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _user(options: KafkaOptions) -> dict[str, str]:
    if options.sasl_username is None or options.sasl_password is None:
        raise SettingsError(
            f"CDC_KAFKA__SASL: {options.sasl_mechanism} needs a user and a password",
            hint="set CDC_KAFKA__SASL__USERNAME and CDC_KAFKA__SASL__PASSWORD",
        )
    return {
        "sasl_plain_username": options.sasl_username,
        "sasl_plain_password": options.sasl_password.get_secret_value(),
    }


class _Tokens(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    """Asks the user's callable for a token at every connect."""

    def __init__(self, provide: Callable[[], Any]) -> None:
        self._provide = provide

    async def token(self) -> str:
        """Return a token."""
        token = self._provide()
        return str(await token if inspect.isawaitable(token) else token)


def _token_provider(options: KafkaOptions) -> _Tokens:
    name = options.sasl_token_provider or ""
    module, _, attribute = name.partition(":")
    try:
        provide = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise SettingsError(
            f"CDC_KAFKA__SASL__TOKEN_PROVIDER: {name!r} cannot be loaded ({exc})",
            hint="write module:callable, importable from where cdc runs",
        ) from None
    if not callable(provide):
        raise SettingsError(
            f"CDC_KAFKA__SASL__TOKEN_PROVIDER: {name!r} is not callable"
        )
    return _Tokens(provide)
