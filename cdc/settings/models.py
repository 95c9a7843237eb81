"""Every setting, its default and what it is good for.

One frozen model a concern; units are in the names. Nobody below ``cdc.app`` sees these.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from cdc.outbox import DEFAULT_TOPIC, Template, check_topic, parse_tables
from slots.state import LIMIT_NAMES, Limits


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _names(text: str) -> str:
    """Check a list of column names: comma-separated, quoted where they hold a comma."""
    column_names(text)
    return text


def column_names(text: str) -> tuple[str, ...]:
    """Return the alternatives of a column setting; empty text is none."""
    rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    names = tuple(name.strip() for name in rows[0]) if rows else ()
    if names == ("",):
        return ()
    if "" in names:
        raise ValueError("a name between two commas is missing")
    return names


def _tables(text: str) -> str:
    parse_tables(text)
    return text


def _topic(text: str) -> str:
    template = Template.parse(text)
    # What stands between the columns has to be legal by itself.
    wrong = check_topic(
        template.literals if template.is_constant else "x" + template.literals
    )
    if wrong is not None:
        raise ValueError(f"{text!r} makes no legal topic: {wrong}")
    return text


def _headers(value: dict[str, str]) -> dict[str, str]:
    from cdc.outbox.mapping import is_reserved  # noqa: PLC0415 - one use

    for name, text in value.items():
        Template.parse(text)
        if is_reserved(name):
            raise ValueError(f"header {name!r} is walferry's own")
    return value


def _json_object(value: Any) -> Any:
    import orjson  # noqa: PLC0415 - one use

    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as exc:
        raise ValueError(
            'not a JSON object of texts, such as {"eventType": "{event_type}"}'
        ) from exc


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - a port
        raise ValueError("write host:port, 127.0.0.1:8080 or [::1]:8080")
    del host
    return text


Names = Annotated[str, AfterValidator(_names)]


class PostgresSettings(_Group):
    """The source."""

    dsn: SecretStr = Field(
        SecretStr(""), description="URI or key=value; empty: libpq's PG* variables"
    )
    password_file: Path | None = Field(None, description="read at every connect")
    password_command: str | None = Field(None, description="run at every connect")
    connect_timeout_s: PositiveFloat = Field(10.0, description="for each host")


class SlotSettings(_Group):
    """The replication slot."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,63}$")] = "walferry"
    plugin: Literal["pgoutput", "wal2json"] = "pgoutput"
    publication: Annotated[str, Field(min_length=1, max_length=63)] = "walferry"
    wait_s: Annotated[float, Field(ge=0)] = Field(
        0.0, description="for a slot in use; 0 is for ever"
    )


class ColumnSettings(_Group):
    """Columns by role; several names separated by commas: the first that exists."""

    id: Annotated[Names, Field(min_length=1)] = "id"
    aggregate_type: Names = "aggregatetype"
    key: Names = "aggregateid"
    type: Names = "type"
    payload: Annotated[Names, Field(min_length=1)] = "payload"
    headers: Names = ""
    partition_key: Names = ""


class OutboxSettings(_Group):
    """The outbox tables."""

    tables: Annotated[str, AfterValidator(_tables)] = "public.outbox"
    columns: ColumnSettings = ColumnSettings()
    topic: Annotated[str, AfterValidator(_topic)] = DEFAULT_TOPIC


class RecordSettings(_Group):
    """What goes into a record beside the row's own."""

    headers: Annotated[
        dict[str, str],
        NoDecode,
        AfterValidator(_headers),
        BeforeValidator(_json_object),
    ] = Field({}, description="header > template, JSON or a TOML table")


class SslSettings(_Group):
    """TLS to the broker."""

    cafile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    key_password: SecretStr | None = None
    check_hostname: bool = True


class SaslSettings(_Group):
    """Credentials for the broker."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "PLAIN"
    )
    username: str | None = None
    password: SecretStr | None = None
    token_provider: str | None = Field(None, description="module:callable")


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
    max_request_bytes: PositiveInt = 1_048_576
    batch_bytes: PositiveInt = 262_144
    request_timeout_s: PositiveFloat = 30.0
    delivery_timeout_s: PositiveFloat = 120.0
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = (
        "PLAINTEXT"
    )
    ssl: SslSettings = SslSettings()
    sasl: SaslSettings = SaslSettings()


class JsonlSettings(_Group):
    """JSON lines."""

    path: str = Field("-", description="a file, or - for stdout")


class WindowSettings(_Group):
    """How much may be on its way."""

    bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        32 << 20, description="events in flight; more memory than that is not used"
    )


class BackoffSettings(_Group):
    """Pauses between attempts."""

    initial_s: PositiveFloat = 0.2
    max_s: PositiveFloat = 10.0


class AlarmSettings(_Group):
    """When the slot is worth an alarm; the limits have the names and forms of SLOTS_*.

    A threshold is ``WARNING:CRITICAL``, either half alone, or ``off``.
    """

    retained: str | None = None
    lag: str | None = None
    budget: str | None = None
    time_to_loss: str | None = None
    transaction_gap: str | None = None
    transaction_age: str | None = None
    inactive: str | None = None
    no_progress: str | None = None
    xmin_age: str | None = None
    slot_count: str | None = None
    disk: str | None = None
    no_wal_limit: str | None = None
    interval_s: PositiveFloat = Field(10.0, description="between two looks")
    notify: SecretStr | None = Field(None, description="URL of a webhook")

    @field_validator(*LIMIT_NAMES)
    @classmethod
    def _is_readable(cls, text: str | None, field: ValidationInfo) -> str | None:
        name = field.field_name or ""
        if text:
            try:
                Limits.of({name: text})
            except ValueError as exc:
                raise ValueError(str(exc).removeprefix(f"{name}: ")) from None
        return text

    def limits(self) -> Limits:
        """Return the limits; raise ValueError for one that cannot be read."""
        given = {name: getattr(self, name) for name in LIMIT_NAMES}
        return Limits.of({name: text for name, text in given.items() if text})


class HttpSettings(_Group):
    """Health and metrics."""

    listen: Annotated[str, AfterValidator(_listen)] | None = Field(
        None, description="host:port; off unless set"
    )


class LogSettings(_Group):
    """The log, on stderr."""

    format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, else json"
    )
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """All settings; see README for where they come from."""

    model_config = SettingsConfigDict(
        env_prefix="CDC_",
        env_nested_delimiter="__",
        toml_file="cdc.toml",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        nested_model_default_partial_update=True,
    )

    name: Annotated[str, Field(min_length=1)] = "{database}.{slot}"
    postgres: PostgresSettings = PostgresSettings()
    slot: SlotSettings = SlotSettings()
    outbox: OutboxSettings = OutboxSettings()
    record: RecordSettings = RecordSettings()
    sink: Annotated[str, Field(pattern=r"^(kafka|jsonl|[\w.]+:[\w.]+)$")] = "kafka"
    kafka: KafkaSettings = KafkaSettings()
    jsonl: JsonlSettings = JsonlSettings()
    window: WindowSettings = WindowSettings()
    backoff: BackoffSettings = BackoffSettings()
    http: HttpSettings = HttpSettings()
    alarms: AlarmSettings = AlarmSettings()
    log: LogSettings = LogSettings()
    status_interval_s: PositiveFloat = 10.0
    grace_s: PositiveFloat = 10.0
    startup_timeout_s: Annotated[float, Field(ge=0)] = 60.0
