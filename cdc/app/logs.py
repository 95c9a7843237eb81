"""The log: structured events on stderr, JSON for machines, readable on a terminal.

Events carry a fixed name and facts, never payloads. What libraries log (aiokafka,
asyncio) goes the same way, from warnings on. A processor blots out known secrets: the
last line of defence, not the first.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

import structlog

from slots.connect.target import parse, secrets
from slots.errors import BadConnectionSettings

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from cdc.settings import Settings

_MASK: Final = "***"
_SHORTEST_SECRET: Final = 4
"""Shorter ones would blot out ordinary words."""


def set_up_logs(settings: Settings, *, name: str, only_errors: bool = False) -> None:
    """Send all logs to stderr in the chosen form, with the relay's name in each.

    Args:
        settings: form, level, and what is secret.
        name: the relay's.
        only_errors: for commands whose answer is on stdout and tells of failures.

    """
    is_console = settings.log.format == "console" or (
        settings.log.format == "auto" and sys.stderr.isatty()
    )
    level = logging.getLevelNamesMapping()[settings.log.level.upper()]
    if only_errors:
        level = max(level, logging.ERROR)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # The plain formatter: others show local variables, and those hold secrets.
        structlog.processors.format_exc_info,
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
                _Blotter(secrets_of(settings)),
                final,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("cdc").setLevel(level)
    logging.getLogger("slots").setLevel(level)
    # It repeats every failed attempt to connect; the supervisor tells it once.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    structlog.contextvars.bind_contextvars(relay=name, slot=settings.slot.name)


def secrets_of(settings: Settings) -> list[str]:
    """List every secret in every form in which it could be quoted, longest first."""
    given = [
        settings.kafka.sasl.password,
        settings.kafka.ssl.key_password,
        settings.alarms.notify,
    ]
    values = [{"password": one.get_secret_value()} for one in given if one is not None]
    try:
        values.append(parse(settings.postgres.dsn))
    except BadConnectionSettings:
        values.append({"password": settings.postgres.dsn.get_secret_value()})
    forms = {form for value in values for form in secrets(value)}
    long_enough = (form for form in forms if len(form) >= _SHORTEST_SECRET)
    return sorted(long_enough, key=len, reverse=True)


class _Blotter:
    """Replaces secrets in every text of a log event, however deep inside it stands."""

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = secrets

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        return {name: self._blot(value) for name, value in event.items()}

    def _blot(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case dict():
                return {str(name): self._blot(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self._blot(inner) for inner in value]
        text = value if isinstance(value, str) else repr(value)
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text
