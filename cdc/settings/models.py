"""Every setting, its default and what it is good for.

One frozen model a concern; units are in the names. Nobody below ``cdc.app`` sees these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
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
from cdc.settings.group import Group
from cdc.settings.kafka import KafkaSettings
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


class PostgresSettings(Group):
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


class SlotSettings(Group):
    """The replication slot."""

    name: SlotName = "walferry"
    plugin: Literal["pgoutput", "wal2json"] = Field(
        "pgoutput", description="pgoutput is in every server"
    )
    publication: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        "walferry", description="what pgoutput reads; wal2json has none"
    )
    wait_s: Seconds = Field(0.0, description="for a slot in use; 0 is for ever")


class ColumnSettings(Group):
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


class OutboxSettings(Group):
    """The outbox tables."""

    tables: Tables = Field(
        "public.outbox", description="schema.table, comma-separated; case is kept"
    )
    columns: ColumnSettings = ColumnSettings()
    topic: Topic = Field(DEFAULT_TOPIC, description="a constant, or with {column}")


class RecordSettings(Group):
    """What goes into a record beside the row's own."""

    headers: Annotated[Headers, NoDecode] = Field(
        {}, description="header > template, JSON or a TOML table"
    )


class JsonlSettings(Group):
    """JSON lines."""

    path: Annotated[str, Field(min_length=1)] = Field(
        "-", description="a file, or - for stdout"
    )


class WindowSettings(Group):
    """How much may be on its way."""

    bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        32 << 20, description="events in flight; more memory than that is not used"
    )


class BackoffSettings(Group):
    """Pauses between attempts."""

    initial_s: PositiveSeconds = 0.2
    max_s: PositiveSeconds = Field(
        10.0, description="a server that is back is found within this time"
    )


class AlarmSettings(Group):
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


class RetentionSettings(Group):
    """Deleting outbox rows that are acknowledged and old enough."""

    keep_s: Annotated[PositiveSeconds | None, UNSET] = Field(
        None, description="off unless set; `cdc prune` does it once"
    )
    interval_s: PositiveSeconds = Field(60.0, description="between two rounds")
    batch_rows: PositiveInt = Field(100, description="deleted in one transaction")
    age_column: Annotated[str, Field(min_length=1)] = Field(
        "created_at", description="tells a row's age"
    )


class HttpSettings(Group):
    """Health and metrics."""

    listen: Annotated[Listen | None, UNSET] = Field(
        None, description="host:port; off unless set"
    )


class LogSettings(Group):
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
    snapshot: Literal["never", "outbox"] = Field(
        "never", description="outbox: a first start publishes the rows that are there"
    )
    on_slot_loss: Literal["stop", "resnapshot"] = Field(
        "stop", description="resnapshot: once for each cause, then stop"
    )
    window: WindowSettings = WindowSettings()
    backoff: BackoffSettings = BackoffSettings()
    retention: RetentionSettings = RetentionSettings()
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
