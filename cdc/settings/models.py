"""Every setting, its default and what it is good for.

One frozen model a concern; units are in the names. Nobody below ``cdc.app`` sees these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from cdc.outbox import DEFAULT_TOPIC
from cdc.settings.values import (
    UNSET,
    Columns,
    Headers,
    Listen,
    PositiveSeconds,
    RelayName,
    RequiredColumns,
    Seconds,
    SinkName,
    SlotName,
    Tables,
    Topic,
)
from slots.state import LIMIT_NAMES, Limits

TOML_FILE: Final = "cdc.toml"


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class PostgresSettings(_Group):
    """The source."""

    dsn: SecretStr = Field(
        SecretStr(""), description="URI or key=value; empty: libpq's PG* variables"
    )
    password_file: Annotated[Path | None, UNSET] = Field(
        None, description="read at every connect"
    )
    password_command: Annotated[str | None, UNSET] = Field(
        None, description="run at every connect"
    )


class SlotSettings(_Group):
    """The replication slot."""

    name: SlotName = "walferry"
    plugin: Literal["pgoutput", "wal2json"] = Field(
        "pgoutput", description="pgoutput is in every server"
    )
    publication: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        "walferry", description="what pgoutput reads; wal2json has none"
    )
    wait_s: Seconds = Field(0.0, description="for a slot in use; 0 is for ever")


class ColumnSettings(_Group):
    """Columns by role; several names separated by commas: the first that exists.

    The defaults are those of Debezium's outbox tables. Empty: no such column.
    """

    id: RequiredColumns = "id"
    aggregate_type: Columns = "aggregatetype"
    key: Columns = "aggregateid"
    type: Columns = "type"
    payload: RequiredColumns = "payload"
    headers: Columns = ""
    partition_key: Columns = ""


class OutboxSettings(_Group):
    """The outbox tables."""

    tables: Tables = Field(
        "public.outbox", description="schema.table, comma-separated; case is kept"
    )
    columns: ColumnSettings = ColumnSettings()
    topic: Topic = Field(DEFAULT_TOPIC, description="a constant, or with {column}")


class RecordSettings(_Group):
    """What goes into a record beside the row's own."""

    headers: Annotated[Headers, NoDecode] = Field(
        {}, description="header > template, JSON or a TOML table"
    )


class SslSettings(_Group):
    """TLS to the broker."""

    cafile: Annotated[Path | None, UNSET] = Field(
        None, description="none: the system's certificate authorities"
    )
    certfile: Annotated[Path | None, UNSET] = None
    keyfile: Annotated[Path | None, UNSET] = None
    key_password: Annotated[SecretStr | None, UNSET] = None
    check_hostname: bool = True


class SaslSettings(_Group):
    """Credentials for the broker."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "PLAIN"
    )
    username: Annotated[str | None, UNSET] = None
    password: Annotated[SecretStr | None, UNSET] = None
    token_provider: Annotated[str | None, UNSET] = Field(
        None, description="module:callable"
    )


class KafkaSettings(_Group):
    """The Kafka cluster."""

    bootstrap_servers: str = Field("", description="host:port, comma-separated")
    delivery: Literal["at_least_once"] = "at_least_once"
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


class JsonlSettings(_Group):
    """JSON lines."""

    path: Annotated[str, Field(min_length=1)] = Field(
        "-", description="a file, or - for stdout"
    )


class WindowSettings(_Group):
    """How much may be on its way."""

    bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        32 << 20, description="events in flight; more memory than that is not used"
    )


class BackoffSettings(_Group):
    """Pauses between attempts."""

    initial_s: PositiveSeconds = 0.2
    max_s: PositiveSeconds = Field(
        10.0, description="a server that is back is found within this time"
    )


class AlarmSettings(_Group):
    """When the slot is worth an alarm; names, forms and defaults are those of SLOTS_*.

    A threshold is ``WARNING:CRITICAL``, either half alone, or ``off``.
    """

    retained: str = "off"
    lag: str = "1GB:5GB"
    budget: str = "50%:80%"
    time_to_loss: str = "6h:1h"
    transaction_gap: str = "4GB"
    transaction_age: str = "30m"
    inactive: str = "5m:30m"
    no_progress: str = "5m:30m"
    xmin_age: str = "10000000:100000000"
    slot_count: str = "80%:100%"
    disk: str = Field("off", description="bytes of WAL the disk can take for a slot")
    no_wal_limit: Literal["on", "off"] = Field(
        "on", description="warn of a server without max_slot_wal_keep_size"
    )
    interval_s: PositiveSeconds = Field(10.0, description="between two looks")
    notify: Annotated[SecretStr | None, UNSET] = Field(
        None, description="URL of a webhook"
    )

    @field_validator(*LIMIT_NAMES)
    @classmethod
    def _is_readable(cls, text: str, field: ValidationInfo) -> str:
        name = field.field_name or ""
        try:
            Limits.of({name: text})
        except ValueError as exc:
            raise ValueError(str(exc).removeprefix(f"{name}: ")) from None
        return text

    def limits(self) -> Limits:
        """Return the limits."""
        return Limits.of({name: getattr(self, name) for name in LIMIT_NAMES})


class HttpSettings(_Group):
    """Health and metrics."""

    listen: Annotated[Listen | None, UNSET] = Field(
        None, description="host:port; off unless set"
    )


class LogSettings(_Group):
    """The log, on stderr."""

    format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, else json"
    )
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """All settings; what is not given comes from ``cdc.toml``."""

    model_config = SettingsConfigDict(
        env_prefix="CDC_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        nested_model_default_partial_update=True,
    )

    name: RelayName = "{database}.{slot}"
    postgres: PostgresSettings = PostgresSettings()
    slot: SlotSettings = SlotSettings()
    outbox: OutboxSettings = OutboxSettings()
    record: RecordSettings = RecordSettings()
    sink: SinkName = "kafka"
    kafka: KafkaSettings = KafkaSettings()
    jsonl: JsonlSettings = JsonlSettings()
    window: WindowSettings = WindowSettings()
    backoff: BackoffSettings = BackoffSettings()
    http: HttpSettings = HttpSettings()
    alarms: AlarmSettings = AlarmSettings()
    log: LogSettings = LogSettings()
    status_interval_s: PositiveSeconds = Field(
        10.0, description="to Postgres; never more than a third of wal_sender_timeout"
    )
    grace_s: PositiveSeconds = Field(
        10.0, description="for acknowledgements when told to stop"
    )
    startup_timeout_s: Seconds = Field(
        60.0, description="for servers at the first start; afterwards for ever"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[Any],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources; files with secrets are what password_file is for."""
        # The library's own source for .env takes every line of it for a setting.
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, TomlConfigSettingsSource(settings_cls, TOML_FILE)
