"""The settings in force, fit to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from pydantic import BaseModel, SecretStr

from cdc.settings.names import setting_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.settings import Settings

MASK: Final = "***"
_SECRET_DISPLAY: Final = b"*"
"""What libpq says of an option that must not be shown (PQconninfoOption.dispchar)."""


def effective(settings: Settings) -> dict[str, Any]:
    """Return name > value of every setting; secrets are masked.

    Of a DSN everything but its secrets stays visible. One that cannot be read is masked
    whole.
    """
    shown = {setting_name(path): value for path, value in _leaves(settings, ())}
    shown["CDC_POSTGRES__DSN"] = _dsn(settings.postgres.dsn.get_secret_value())
    return shown


def _leaves(
    model: BaseModel, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        here = (*path, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, here)
        elif isinstance(value, SecretStr):
            yield here, MASK
        elif value is None or isinstance(value, bool | int | float | str | dict):
            yield here, value
        else:
            yield here, str(value)


def _dsn(dsn: str) -> str:
    if not dsn:
        return ""
    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError:
        return MASK
    hidden = {
        option.keyword.decode()
        for option in Conninfo.get_defaults()
        if option.dispchar == _SECRET_DISPLAY
    }
    masked = {name: MASK if name in hidden else value for name, value in parts.items()}
    return make_conninfo("", **masked)
