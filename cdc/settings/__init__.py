"""Settings: environment over ``.env`` over ``cdc.toml`` over defaults.

A wrong setting is an error with its name and what it may be; an unknown one is an error
with the nearest name, wherever it stands. Values are never shown: they may be secrets.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from cdc.errors import SettingsError
from cdc.settings import complaints
from cdc.settings.dotenv_file import read_dotenv
from cdc.settings.models import TOML_FILE, Settings
from cdc.settings.names import all_names, unknown_names
from cdc.settings.values import column_names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Settings", "column_names", "load_settings"]

ENV_FILE: Final = ".env"


class _Lines(EnvSettingsSource):
    """Variables, from wherever they come, as nested values."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        self._lines = lines
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        # What is no setting (a service of Kubernetes) is nobody's value.
        return {
            name.lower(): self._lines[name]
            for name in all_names(Settings)
            if name in self._lines
        }


def load_settings() -> Settings:
    """Read all settings; raise SettingsError with a line for each thing wrong."""
    places = {ENV_FILE: read_dotenv(Path(ENV_FILE)), "environment": dict(os.environ)}
    problems = [
        complaints.unknown(where, name)
        for where, lines in places.items()
        for name in unknown_names(lines, Settings)
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    if Path(TOML_FILE).is_dir():
        # What a container engine makes of a mount whose source is not there.
        raise SettingsError(f"{TOML_FILE} cannot be read: it is a directory")
    lines = {
        name.upper(): value
        for place in places.values()
        for name, value in place.items()
    }
    try:
        return Settings(**_Lines(lines)())
    except ValidationError as exc:
        problems = [
            complaints.wrong(error, Settings, file=TOML_FILE) for error in exc.errors()
        ]
    except UnicodeDecodeError:
        problems = [f"{TOML_FILE} cannot be read: it is not UTF-8 text"]
    except tomllib.TOMLDecodeError as exc:
        problems = [f"{TOML_FILE} cannot be read: {exc}"]
    except OSError as exc:
        problems = [f"{TOML_FILE} cannot be read: {exc.strerror}"]
    raise SettingsError("\n".join(problems))
