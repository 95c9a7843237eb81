"""Settings become the parts of a relay."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import SettingsError
from cdc.outbox import Columns, Mapping, Template, parse_tables
from cdc.outbox.template import TABLE_FIELDS
from cdc.requirements import Wanted
from cdc.retention import Retention
from cdc.session import Source
from cdc.settings import column_names
from cdc.sinks.jsonl import STDOUT
from slots.connect import Target
from slots.connect.target import defaults, parse
from slots.errors import BadConnectionSettings

if TYPE_CHECKING:
    from cdc.settings import Settings
    from cdc.sinks import PositionStore, ReadBack, Sink
    from cdc.sinks.kafka_options import KafkaOptions


_FACTORY: Final = (
    "write module:factory, importable from where cdc runs; it takes no argument and"
    " returns a sink (cdc.sinks.Sink)"
)
_SINK_PARTS: Final = ("__aenter__", "__aexit__", "publish", "troubles", "check")


def relay_name(settings: Settings) -> str:
    """Return who this relay is: ``CDC_NAME`` with database and slot filled in."""
    return settings.name.replace("{database}", _database(settings)).replace(
        "{slot}", settings.slot.name
    )


def target_of(settings: Settings) -> Target:
    """Return the source server and how to get in."""
    return Target(
        dsn=settings.postgres.dsn,
        password_file=settings.postgres.password_file,
        password_command=settings.postgres.password_command,
        # Postgres cuts it at 63 bytes; the beginning is what tells who it is.
        application_name=f"walferry {relay_name(settings)}",
    )


def mapping_of(settings: Settings) -> Mapping:
    """Return how rows become events."""
    columns = settings.outbox.columns
    return Mapping(
        columns=Columns(
            id=column_names(columns.id),
            aggregate_type=column_names(columns.aggregate_type),
            key=column_names(columns.key),
            type=column_names(columns.type),
            payload=column_names(columns.payload),
            headers=column_names(columns.headers),
            partition_key=column_names(columns.partition_key),
        ),
        topic=Template.parse(settings.outbox.topic),
        record_headers=tuple(
            (name, Template.parse(text))
            for name, text in settings.record.headers.items()
        ),
    )


def source_of(settings: Settings) -> Source:
    """Return where rows come from."""
    mapping = mapping_of(settings)
    return Source(
        name=relay_name(settings),
        target=target_of(settings),
        wanted=Wanted(
            slot=settings.slot.name,
            plugin=settings.slot.plugin,
            publication=settings.slot.publication,
            tables=parse_tables(settings.outbox.tables),
            required_columns=mapping.required_columns(),
        ),
        mapping=mapping,
        first_snapshot=settings.snapshot == "outbox",
        status_interval_s=settings.status_interval_s,
        window_bytes=settings.window.bytes,
        grace_s=settings.grace_s,
    )


def retention_of(settings: Settings, keep_s: float) -> Retention:
    """Return which rows are kept.

    Args:
        settings: for everything but the time.
        keep_s: how long a row is kept, in seconds.

    """
    return Retention(
        keep_s=keep_s,
        age_column=settings.retention.age_column,
        batch_rows=settings.retention.batch_rows,
    )


def constant_topics(settings: Settings) -> list[str]:
    """Return the topics that are known before any row is read."""
    template = Template.parse(settings.outbox.topic)
    if template.columns:
        return []
    names = []
    for table in parse_tables(settings.outbox.tables):
        own = {"schema": table.schema, "table": table.name}
        names.append(
            "".join(
                literal + (own[field] if field in TABLE_FIELDS else "")
                for literal, field in template.parts
            )
        )
    return list(dict.fromkeys(names))


def sink_of(settings: Settings) -> Sink:
    """Return where events go; raise SettingsError for one that cannot be made."""
    if settings.sink == "kafka":
        return _kafka(settings)
    if settings.sink == "jsonl":
        from cdc.sinks.jsonl import JsonlSink  # noqa: PLC0415 - only what is used

        return JsonlSink(settings.jsonl.path)
    return _from_factory(settings.sink)


def store_of(settings: Settings) -> PositionStore:
    """Return where positions are kept: beside the events, where that can be.

    A sink of the user's own keeps none; its positions live in the source database.
    """
    if settings.sink == "kafka":
        from cdc.sinks.kafka_positions import KafkaPositions  # noqa: PLC0415

        return KafkaPositions(kafka_options(settings), settings.kafka.state_topic)
    if settings.sink == "jsonl":
        from cdc.sinks.jsonl_positions import (  # noqa: PLC0415
            NoPositions,
            SidecarPositions,
        )

        is_kept = _is_regular(settings.jsonl.path)
        return SidecarPositions(settings.jsonl.path) if is_kept else NoPositions()
    from cdc.sinks.table_positions import TablePositions  # noqa: PLC0415

    return TablePositions(target_of(settings))


def read_back_of(settings: Settings) -> ReadBack | None:
    """Return what tells which events are there already; None for a sink that cannot."""
    if settings.sink == "kafka":
        from cdc.sinks.kafka_read_back import KafkaReadBack  # noqa: PLC0415

        return KafkaReadBack(kafka_options(settings))
    if settings.sink == "jsonl" and _is_regular(settings.jsonl.path):
        from cdc.sinks.jsonl_read_back import JsonlReadBack  # noqa: PLC0415

        return JsonlReadBack(settings.jsonl.path)
    return None


def _is_regular(path: str) -> bool:
    """Tell whether events go to a file, not to stdout, a pipe or a device."""
    return path != STDOUT and (Path(path).is_file() or not Path(path).exists())


def _kafka(settings: Settings) -> Sink:
    from cdc.sinks.kafka import KafkaSink  # noqa: PLC0415 - only what is used

    return KafkaSink(kafka_options(settings))


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return how the cluster is reached; raise SettingsError for what cannot work."""
    from cdc.sinks.kafka_options import (  # noqa: PLC0415 - only what is used
        KafkaOptions,
        producer_arguments,
    )

    kafka = settings.kafka
    if not kafka.bootstrap_servers:
        raise SettingsError(
            "CDC_KAFKA__BOOTSTRAP_SERVERS: not set",
            hint="set it to host:port of a broker, or CDC_SINK=jsonl",
        )
    options = KafkaOptions(
        bootstrap_servers=kafka.bootstrap_servers,
        client_id=f"walferry-{relay_name(settings)}",
        required_topics=tuple(constant_topics(settings)),
        compression=kafka.compression,
        max_request_bytes=kafka.max_request_bytes,
        batch_bytes=min(kafka.batch_bytes, kafka.max_request_bytes),
        request_timeout_s=kafka.request_timeout_s,
        delivery_timeout_s=kafka.delivery_timeout_s,
        create_topics=kafka.create_topics,
        topic_partitions=kafka.topic_partitions,
        topic_replication=kafka.topic_replication,
        security_protocol=kafka.security_protocol,
        ssl_cafile=kafka.ssl.cafile,
        ssl_certfile=kafka.ssl.certfile,
        ssl_keyfile=kafka.ssl.keyfile,
        ssl_key_password=kafka.ssl.key_password,
        ssl_check_hostname=kafka.ssl.check_hostname,
        sasl_mechanism=kafka.sasl.mechanism,
        sasl_username=kafka.sasl.username,
        sasl_password=kafka.sasl.password,
        sasl_token_provider=kafka.sasl.token_provider,
    )
    producer_arguments(options)  # what is wrong with them is a usage error, now
    return options


def _from_factory(name: str) -> Sink:
    module, _, attribute = name.partition(":")
    try:
        factory: Any = getattr(importlib.import_module(module), attribute)
        sink = factory()
    except Exception as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise SettingsError(
            f"CDC_SINK: {name} cannot be made: {reason}", hint=_FACTORY
        ) from exc
    lacking = [part for part in _SINK_PARTS if not hasattr(sink, part)]
    if lacking:
        raise SettingsError(
            f"CDC_SINK: what {name} makes is no sink, it has no {', '.join(lacking)}",
            hint=_FACTORY,
        )
    made: Sink = sink
    return made


def _database(settings: Settings) -> str:
    """Return the database's name as libpq will find it, before connecting.

    Several hosts have one database name, so that it is known whichever answers.
    """
    try:
        parts = parse(settings.postgres.dsn)
    except BadConnectionSettings:
        return "unknown"
    known = defaults() | _of_service(parts) | {k: v for k, v in parts.items() if v}
    # Libpq's own order: the database's name, else the role's.
    return str(known.get("dbname") or known.get("user") or "postgres")


def _of_service(parts: dict[str, Any]) -> dict[str, str]:
    """Return what the service file says, when it is the DSN that names a service."""
    service = parts.get("service")
    if not service:
        return {}
    before = os.environ.get("PGSERVICE")
    os.environ["PGSERVICE"] = str(service)  # libpq reads the file for this one only
    try:
        return defaults()
    finally:
        if before is None:
            del os.environ["PGSERVICE"]
        else:
            os.environ["PGSERVICE"] = before
