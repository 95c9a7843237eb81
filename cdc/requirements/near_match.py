"""The name that was probably meant, when the one that was written does not exist."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLOSE: Final = 0.75


def near_match(wanted: str, existing: Iterable[str]) -> str | None:
    """Return the existing name most like the wanted one, or None.

    Case, underscores, spaces and quotes count for nothing at first; after that,
    spelling mistakes are forgiven.
    """
    names = sorted(existing)
    for name in names:
        if name.casefold() == wanted.casefold():
            return name
    by_letters: dict[str, str] = {}
    for name in names:
        by_letters.setdefault(_letters(name), name)
    close = get_close_matches(_letters(wanted), by_letters, n=1, cutoff=_CLOSE)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return "".join(
        letter for letter in name.casefold() if letter.isalnum() or letter == "."
    )
