"""The lines of ``.env`` that are ours.

The file is shared with other programs: what they write there is theirs, readable or
not. A line of ours that cannot be read is an error.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from dotenv.main import resolve_variables
from dotenv.parser import parse_stream

from cdc.errors import SettingsError
from cdc.settings.names import PREFIX

if TYPE_CHECKING:
    from pathlib import Path


def read_dotenv(path: Path) -> dict[str, str]:
    """Return our lines, with ``${NAME}`` filled in; an absent file has none.

    Raises:
        SettingsError: the file, or one of our lines, cannot be read.

    """
    pairs: list[tuple[str, str | None]] = []
    for binding in parse_stream(io.StringIO(_text(path))):
        ours = PREFIX in binding.original.string.upper()
        if ours and (binding.error or (binding.key and binding.value is None)):
            # An open quote of theirs may swallow a line of ours.
            raise SettingsError(
                f"{path} line {binding.original.line} cannot be read",
                hint="write NAME=value and close every quote",
            )
        if binding.key is not None:
            pairs.append((binding.key, binding.value))
    resolved = resolve_variables(pairs, override=True)
    return {
        name: value
        for name, value in resolved.items()
        if value is not None and name.upper().startswith(PREFIX)
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise SettingsError(f"{path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} cannot be read: it is not UTF-8 text") from None
