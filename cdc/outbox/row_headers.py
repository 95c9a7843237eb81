"""The headers column: a JSON object becomes header pairs, exactly.

Strings become their text, null a null header, and everything else its JSON text just as
it stands in the column: a number keeps its digits, an object its spacing. That is why
values are cut out of the text instead of being dumped again.
"""

from __future__ import annotations

import json
from typing import Final

_WHITESPACE: Final = " \t\n\r"
_scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


def header_pairs(column: bytes) -> list[tuple[str, bytes | None]]:
    """Read a JSON object's members in order, repeated names included.

    Raises ValueError when the text is not a JSON object. JSON ``null`` is no headers.
    """
    try:
        text = column.decode()
        start = _skip_blank(text, 0)
        if text.strip(_WHITESPACE) == "null":
            return []
        if text[start] != "{":
            raise ValueError("not a JSON object")
        pairs, offset = _members(text, _skip_blank(text, start + 1))
        if offset != len(text):
            raise ValueError(f"text behind the object at character {offset + 1}")
    except (IndexError, StopIteration, RecursionError) as exc:
        raise ValueError("not a JSON object") from exc
    return pairs


def _members(text: str, offset: int) -> tuple[list[tuple[str, bytes | None]], int]:
    pairs: list[tuple[str, bytes | None]] = []
    if text[offset] == "}":
        return pairs, _skip_blank(text, offset + 1)
    while True:
        if text[offset] != '"':
            raise ValueError(f"a name is missing at character {offset + 1}")
        name, end = _scan(text, offset)
        if not _is_text(name):
            name = text[offset + 1 : end - 1]
        offset = _skip_blank(text, end)
        if text[offset] != ":":
            raise ValueError(f"':' is missing at character {offset + 1}")
        offset = _skip_blank(text, offset + 1)
        value, end = _scan(text, offset)
        pairs.append((name, _header_value(value, text[offset:end])))
        offset = _skip_blank(text, end)
        if text[offset] == "}":
            return pairs, _skip_blank(text, offset + 1)
        if text[offset] != ",":
            raise ValueError(f"',' is missing at character {offset + 1}")
        offset = _skip_blank(text, offset + 1)


def _header_value(value: object, source: str) -> bytes | None:
    if value is None:
        return None
    # A number is a str here as well (parse_int=str), and its source is its text.
    if isinstance(value, str) and source[0] == '"' and _is_text(value):
        return value.encode()
    return source.encode()


def _is_text(value: str) -> bool:
    """Tell whether it has a UTF-8 form: a lone surrogate, legal in JSON, has none."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _skip_blank(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in _WHITESPACE:
        offset += 1
    return offset
