"""Names of settings as environment variables: which exist, and which was meant."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PREFIX: Final = "CDC_"
_DELIMITER: Final = "__"
_KUBERNETES: Final = re.compile(
    r"(?!.*__).*(_SERVICE_HOST|_SERVICE_PORT(_.*)?|_PORT|_PORT_\d+_(TCP|UDP|SCTP)(_.*)?)"
)
"""What a cluster puts into every container for a service whose name begins with cdc;
two underscores in a row are ours."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that is no setting, and the one that is most like it."""

    name: str
    nearest: str | None


def setting_name(path: Iterable[object]) -> str:
    """Return the environment variable of a path of fields."""
    return PREFIX + _DELIMITER.join(str(part).upper() for part in path)


def all_names(model: type[BaseModel]) -> list[str]:
    """Return every setting's name, in order."""
    return [setting_name(path) for path in _paths(model)]


def unknown_names(names: Iterable[str], model: type[BaseModel]) -> list[Unknown]:
    """Return those of the names that look like ours and are not."""
    known = all_names(model)
    return [
        nearest(name, known)
        for name in names
        if name.upper().startswith(PREFIX)
        and name.upper() not in known
        and not _KUBERNETES.fullmatch(name.upper())
    ]


def nearest(name: str, known: Sequence[str]) -> Unknown:
    """Return a name that is no setting with the one that is most like it."""
    near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.6)
    return Unknown(name, near[0] if near else None)


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            for path in _paths(inner):
                yield (name, *path)
        else:
            yield (name,)
