"""Settings become parts: each arrives where it is meant to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc.app.parts import constant_topics, relay_name, sink_of, source_of
from cdc.errors import SettingsError
from cdc.outbox import Columns, TableName
from cdc.settings import load_settings
from cdc.settings.kafka import KafkaSettings, SaslSettings, SslSettings
from cdc.settings.models import Settings
from cdc.settings.names import all_names
from cdc.sinks.jsonl import JsonlSink
from cdc.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Read settings that the environment holds, and nothing else."""
    monkeypatch.chdir(tmp_path)
    libpq = ("PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE")
    for name in [*all_names(Settings), *libpq]:
        monkeypatch.delenv(name, raising=False)

    def with_environment(**environment: str) -> Settings:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return load_settings()

    return with_environment


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"CDC_POSTGRES__DSN": "postgresql://app@a,b/shop"}, "shop.walferry"),
        ({"CDC_POSTGRES__DSN": "user=app", "CDC_SLOT__NAME": "s"}, "app.s"),
        ({"PGDATABASE": "crm"}, "crm.walferry"),
        ({"PGDATABASE": "crm", "CDC_POSTGRES__DSN": "dbname=x"}, "x.walferry"),
        ({"CDC_POSTGRES__DSN": "service=till"}, "tills.walferry"),
        ({"PGSERVICE": "till"}, "tills.walferry"),
        ({"CDC_POSTGRES__DSN": "service=till dbname=x"}, "x.walferry"),
        ({"CDC_NAME": "eu-{database}"}, "eu-app"),
        ({"CDC_NAME": "mine"}, "mine"),
    ],
)
def test_a_relay_is_named_after_the_database_that_libpq_will_find(
    load: Load, tmp_path: Path, environment: dict[str, str], name: str
) -> None:
    (tmp_path / "services").write_text("[till]\ndbname=tills\n")
    settings = load(
        PGSERVICEFILE=str(tmp_path / "services"), PGUSER="app", **environment
    )

    assert relay_name(settings) == name


def test_looking_for_a_service_leaves_the_environment_as_it_was(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay_name(load(CDC_POSTGRES__DSN="service=a"))
    with pytest.raises(KeyError):
        monkeypatch.delenv("PGSERVICE")


def test_the_source_is_what_the_settings_say(load: Load) -> None:
    source = source_of(
        load(
            CDC_POSTGRES__DSN="dbname=shop",
            CDC_POSTGRES__PASSWORD_FILE="/run/secrets/pg",  # noqa: S106 - a file
            CDC_POSTGRES__PASSWORD_COMMAND="mint",  # noqa: S106 - a program
            CDC_SLOT__NAME="s",
            CDC_SLOT__PLUGIN="wal2json",
            CDC_SLOT__PUBLICATION="p",
            CDC_OUTBOX__TABLES='a.b,"C"."d,e"',
            CDC_OUTBOX__COLUMNS__ID="id,event_id",
            CDC_OUTBOX__COLUMNS__AGGREGATE_TYPE="kind",
            CDC_OUTBOX__COLUMNS__KEY="",
            CDC_OUTBOX__COLUMNS__TYPE="t",
            CDC_OUTBOX__COLUMNS__PAYLOAD="body",
            CDC_OUTBOX__COLUMNS__HEADERS="h",
            CDC_OUTBOX__COLUMNS__PARTITION_KEY="tenant",
            CDC_OUTBOX__TOPIC="orders.{region}",
            CDC_RECORD__HEADERS='{"source": "{schema}"}',
            CDC_STATUS_INTERVAL_S="3",
            CDC_WINDOW__BYTES="2000000",
            CDC_GRACE_S="4",
        )
    )

    assert source.target.dsn.get_secret_value() == "dbname=shop"
    assert source.target.password_file == Path("/run/secrets/pg")
    assert source.target.password_command == "mint"  # noqa: S105 - a program
    assert source.target.application_name == "walferry shop.s"
    wanted = source.wanted
    assert (wanted.slot, wanted.plugin, wanted.publication) == ("s", "wal2json", "p")
    assert wanted.tables == (TableName("a", "b"), TableName("C", "d,e"))
    assert source.mapping.columns == Columns(
        id=("id", "event_id"),
        aggregate_type=("kind",),
        key=(),
        type=("t",),
        payload=("body",),
        headers=("h",),
        partition_key=("tenant",),
    )
    assert source.mapping.topic.text == "orders.{region}"
    ((header, template),) = source.mapping.record_headers
    assert (header, template.text) == ("source", "{schema}")
    assert source.status_interval_s == 3
    assert source.window_bytes == 2_000_000
    assert source.grace_s == 4


def test_every_kafka_setting_reaches_the_sink(load: Load, tmp_path: Path) -> None:
    settings = load(
        CDC_POSTGRES__DSN="dbname=shop",
        CDC_KAFKA__BOOTSTRAP_SERVERS="a:1,b:2",
        CDC_KAFKA__CREATE_TOPICS="true",
        CDC_KAFKA__TOPIC_PARTITIONS="3",
        CDC_KAFKA__TOPIC_REPLICATION="2",
        CDC_KAFKA__COMPRESSION="gzip",
        CDC_KAFKA__MAX_REQUEST_BYTES="2000000",
        CDC_KAFKA__BATCH_BYTES="100000",
        CDC_KAFKA__REQUEST_TIMEOUT_S="7",
        CDC_KAFKA__DELIVERY_TIMEOUT_S="8",
        CDC_KAFKA__SECURITY_PROTOCOL="SASL_PLAINTEXT",
        CDC_KAFKA__SSL__CHECK_HOSTNAME="false",
        CDC_KAFKA__SSL__CAFILE=str(tmp_path / "ca"),
        CDC_KAFKA__SSL__CERTFILE=str(tmp_path / "cert"),
        CDC_KAFKA__SSL__KEYFILE=str(tmp_path / "key"),
        CDC_KAFKA__SSL__KEY_PASSWORD="k",  # noqa: S106 - opens nothing
        CDC_KAFKA__SASL__MECHANISM="SCRAM-SHA-512",
        CDC_KAFKA__SASL__USERNAME="u",
        CDC_KAFKA__SASL__PASSWORD="p",  # noqa: S106 - opens nothing
        CDC_KAFKA__SASL__TOKEN_PROVIDER="m:f",  # noqa: S106 - a name
    )

    sink = sink_of(settings)

    assert isinstance(sink, KafkaSink)
    options = sink._options
    given = _values(settings.kafka)
    assert options.client_id == "walferry-shop.walferry"
    assert {name: getattr(options, name) for name in given} == given
    defaults = _values(KafkaSettings())
    assert [name for name in given if given[name] == defaults[name]] == []


def _values(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the settings under the names the sink has for them."""
    plain = {
        name: getattr(kafka, name)
        for name in KafkaSettings.model_fields
        if name not in ("ssl", "sasl", "delivery", "state_topic")
    }
    ssl = {f"ssl_{name}": getattr(kafka.ssl, name) for name in SslSettings.model_fields}
    sasl = {
        f"sasl_{name}": getattr(kafka.sasl, name) for name in SaslSettings.model_fields
    }
    return plain | ssl | sasl


def test_kafka_without_an_address_is_a_usage_error(load: Load) -> None:
    with pytest.raises(SettingsError, match="CDC_KAFKA__BOOTSTRAP_SERVERS: not set"):
        sink_of(load())


def test_lines_of_json_need_no_broker(load: Load) -> None:
    assert isinstance(sink_of(load(CDC_SINK="jsonl")), JsonlSink)


@pytest.mark.parametrize(
    ("template", "topics"),
    [
        ("orders", ["orders"]),
        ("outbox.{schema}.{table}", ["outbox.a.x", "outbox.b.x"]),
        ("all.{table}", ["all.x"]),
        ("orders.{tenant}", []),
        ("outbox.event.{aggregatetype}", []),
    ],
)
def test_topics_without_columns_are_known_before_any_row(
    load: Load, template: str, topics: list[str]
) -> None:
    settings = load(CDC_OUTBOX__TABLES="a.x,b.x", CDC_OUTBOX__TOPIC=template)

    assert constant_topics(settings) == topics
