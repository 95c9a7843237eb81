"""How to reach a Kafka cluster, and how to treat it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aiokafka.abc import AbstractTokenProvider
from aiokafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from aiokafka.errors import AuthenticationFailedError

from cdc.errors import SettingsError

if TYPE_CHECKING:
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
    try:
        context = ssl.create_default_context(cafile=options.ssl_cafile)
    except OSError as exc:
        raise _unreadable("CAFILE", options.ssl_cafile, exc) from None
    if options.ssl_certfile is not None:
        password = options.ssl_key_password
        try:
            context.load_cert_chain(
                options.ssl_certfile,
                options.ssl_keyfile,
                # Without one OpenSSL would ask for it at the terminal, and wait.
                password="" if password is None else password.get_secret_value(),
            )
        except OSError as exc:
            names = "CERTFILE, __KEYFILE or __KEY_PASSWORD"
            raise _unreadable(names, options.ssl_certfile, exc) from None
    context.check_hostname = options.ssl_check_hostname
    return context


def _unreadable(settings: str, path: Path | None, exc: OSError) -> SettingsError:
    reason = exc.strerror or type(exc).__name__
    return SettingsError(
        f"CDC_KAFKA__SSL__{settings}: {path} cannot be used: {reason}",
        hint="PEM files that this user may read, and the password of the key",
    )


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

    def __init__(self, name: str, provide: Callable[[], Any]) -> None:
        self._name = name
        self._provide = provide

    async def token(self) -> str:
        """Return a token; raise AuthenticationFailedError when there is none."""
        try:
            if inspect.iscoroutinefunction(self._provide):
                return str(await self._provide())
            # In a thread: what fetches a token over the network without being async
            # would keep us from answering Postgres meanwhile.
            token = await asyncio.to_thread(self._provide)
            if inspect.isawaitable(token):
                token = await token
        except Exception as exc:  # noqa: BLE001 - anybody's code; its text may be secret
            raise AuthenticationFailedError(
                f"token provider {self._name} failed: {type(exc).__name__}"
            ) from None
        return str(token)


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
    return _Tokens(name, provide)
