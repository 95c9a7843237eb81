"""What is said of a wrong setting: its name and what it may be, never its value.

A value that does not fit may be a secret that got into the wrong place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc.settings.names import all_names, nearest, setting_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from cdc.settings.names import Unknown

_NUMBER: Final = "must be a number"
_WHOLE: Final = "must be a whole number"
_TEXT: Final = "must be a text"
_SWITCH: Final = "must be true or false"
_GROUP: Final = "is a group of settings, not a value: write a table in cdc.toml"

_WORDS: Final[Mapping[str, str]] = {
    "bool_parsing": _SWITCH,
    "bool_type": _SWITCH,
    "finite_number": "must be a finite number",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "model_attributes_type": _GROUP,
    "model_type": _GROUP,
    "path_type": _TEXT,
    "string_too_long": "must be at most {max_length} characters long",
    "string_too_short": "must not be empty",
    "string_type": _TEXT,
}


def unknown(where: str, name: Unknown) -> str:
    """Say that there is no such setting, and which one is meant."""
    meant = f"; did you mean {name.nearest}?" if name.nearest else ""
    return f"{name.name} ({where}): no such setting{meant}"


def wrong(error: Mapping[str, Any], model: type[BaseModel], *, file: str) -> str:
    """Say in one line what pydantic found.

    Args:
        error: one of ``ValidationError.errors()``.
        model: all settings.
        file: where names come from that nobody has looked at yet.

    """
    name = setting_name(error["loc"])
    kind, facts = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown(file, nearest(name, all_names(model)))
    if kind == "literal_error":
        words = "must be " + str(facts["expected"]).replace("'", "")
    elif kind == "value_error":
        words = " ".join(str(facts["error"]).split())
    elif kind in _WORDS:
        words = _WORDS[kind].format(**facts)
    else:
        words = error["msg"]
    return f"{name}: {words}"
