"""The log: structured events on stderr, JSON for machines, readable on a terminal.

Events carry a fixed name and facts, never payloads. What libraries log (aiokafka,
asyncio) goes the same way, from warnings on. A processor blots out known secrets: the
last line of defence, not the first.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import structlog
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from cdc.settings import Settings

_MASK: Final = "***"
_SHORTEST_SECRET: Final = 4
"""Shorter ones would blot out ordinary words."""


def set_up_logs(settings: Settings, *, name: str) -> None:
    """Send all logs to stderr in the chosen form, with the relay's name in each."""
    is_console = settings.log.format == "console" or (
        settings.log.format == "auto" and sys.stderr.isatty()
    )
    level = getattr(logging, settings.log.level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _Blotter(secrets_of(settings)),
    ]
    final: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if is_console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                final,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("cdc").setLevel(level)
    logging.getLogger("slots").setLevel(level)
    # It repeats every failed attempt to connect; the supervisor tells it once.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    structlog.contextvars.bind_contextvars(relay=name, slot=settings.slot.name)


def secrets_of(settings: Settings) -> list[str]:
    """List every secret in every form in which it could be quoted."""
    raw = [
        settings.kafka.sasl.password,
        settings.kafka.ssl.key_password,
        settings.alarms.notify,
    ]
    values = [secret.get_secret_value() for secret in raw if secret is not None]
    try:
        parts = conninfo_to_dict(settings.postgres.dsn.get_secret_value())
    except ProgrammingError:
        values.append(settings.postgres.dsn.get_secret_value())
    else:
        values += [str(parts[k]) for k in ("password", "sslpassword") if parts.get(k)]
    forms = {
        form
        for value in values
        if len(value) >= _SHORTEST_SECRET
        for form in (value, quote(value), quote(value, safe=""), repr(value)[1:-1])
    }
    return sorted(forms, key=len, reverse=True)


class _Blotter:
    """Replaces secrets in every text of a log event."""

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = secrets

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if self._secrets:
            for name, value in event.items():
                if isinstance(value, str):
                    event[name] = self._blot(value)
        return event

    def _blot(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text
