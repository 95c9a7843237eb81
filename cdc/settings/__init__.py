"""Settings: environment over ``.env`` over ``cdc.toml`` over defaults.

A wrong setting is an error with its name and what it may be; an unknown one is an error
with the nearest name, wherever it stands. Values are never shown: they may be secrets.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

from dotenv import dotenv_values
from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource
from pydantic_settings import SettingsError as SourceError

from cdc.errors import SettingsError
from cdc.settings.models import Settings as _Model
from cdc.settings.models import column_names
from cdc.settings.names import PREFIX, Unknown, setting_name, unknown_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_settings import PydanticBaseSettingsSource

__all__ = ["Settings", "column_names", "load_settings"]

ENV_FILE = ".env"
TOML_FILE = "cdc.toml"


class _Environment(EnvSettingsSource):
    """The environment over the lines of ``.env`` that are ours.

    The library's own source for ``.env`` takes every line of it for a setting; the file
    is shared with other programs.
    """

    def _load_env_vars(self) -> Mapping[str, str | None]:
        merged = _dotenv() | dict(os.environ)
        return {name.lower(): value for name, value in merged.items()}


class Settings(_Model):
    """All settings, from their places."""

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
        del env_settings, dotenv_settings, file_secret_settings
        return (
            init_settings,
            _Environment(settings_cls),
            TomlConfigSettingsSource(settings_cls),
        )


def load_settings() -> Settings:
    """Read all settings; raise SettingsError with a line for each thing wrong."""
    problems = [
        _unknown(where, name)
        for where, names in (
            ("environment", list(os.environ)),
            (ENV_FILE, list(_dotenv())),
        )
        for name in unknown_names(names, _Model)
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    try:
        return Settings()
    except ValidationError as exc:
        raise SettingsError(
            "\n".join(_problem(error) for error in exc.errors())
        ) from None
    except SourceError as exc:
        raise SettingsError(" ".join(str(exc).split())) from None
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{TOML_FILE} cannot be read: {exc}") from None


def _dotenv() -> dict[str, str | None]:
    """Return the lines of ``.env`` that are ours; others belong to somebody else."""
    return {
        name: value
        for name, value in dotenv_values(ENV_FILE).items()
        if name.upper().startswith(PREFIX)
    }


def _unknown(where: str, unknown: Unknown) -> str:
    nearest = f"; did you mean {unknown.nearest}?" if unknown.nearest else ""
    return f"{unknown.name} ({where}): no such setting{nearest}"


def _problem(error: Any) -> str:
    name = setting_name(error["loc"])
    if error["type"] == "extra_forbidden":
        known = unknown_names([name], _Model)
        nearest = known[0].nearest if known else None
        hint = f"; did you mean {nearest}?" if nearest else ""
        return f"{name}: no such setting{hint}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{name}: {message[:1].lower()}{message[1:]}"
