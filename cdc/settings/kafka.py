"""The settings of the Kafka sink."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, SecretStr

from cdc.settings.group import Group
from cdc.settings.values import UNSET, PositiveSeconds, TopicName


class SslSettings(Group):
    """TLS to the broker."""

    cafile: Annotated[Path | None, UNSET] = Field(
        None, description="none: the system's certificate authorities"
    )
    certfile: Annotated[Path | None, UNSET] = None
    keyfile: Annotated[Path | None, UNSET] = None
    key_password: Annotated[SecretStr | None, UNSET] = None
    check_hostname: bool = True


class SaslSettings(Group):
    """Credentials for the broker."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "PLAIN"
    )
    username: Annotated[str | None, UNSET] = None
    password: Annotated[SecretStr | None, UNSET] = None
    token_provider: Annotated[str | None, UNSET] = Field(
        None, description="module:callable"
    )


class KafkaSettings(Group):
    """The Kafka cluster."""

    bootstrap_servers: str = Field("", description="host:port, comma-separated")
    delivery: Literal["at_least_once"] = "at_least_once"
    state_topic: TopicName = Field(
        "walferry.positions", description="keeps positions; many relays share it"
    )
    create_topics: bool = False
    topic_partitions: PositiveInt = Field(6, description="of topics we make")
    topic_replication: Annotated[int, Field(ge=0)] = Field(
        0, description="of topics we make; 0: three, or as many as there are brokers"
    )
    compression: Literal["none", "gzip", "lz4", "snappy", "zstd"] = "none"
    max_request_bytes: PositiveInt = Field(
        1_048_576, description="of one record; what a broker takes by default"
    )
    batch_bytes: PositiveInt = Field(
        262_144, description="of records of one partition sent together"
    )
    request_timeout_s: PositiveSeconds = Field(30.0, description="of one request")
    delivery_timeout_s: PositiveSeconds = Field(
        120.0, description="until the outcome of a send counts as unknown"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = (
        "PLAINTEXT"
    )
    ssl: SslSettings = SslSettings()
    sasl: SaslSettings = SaslSettings()
