"""What the text of a setting may be.

A check raises ValueError with what is wrong, in words that fit behind the setting's
name. Nothing here quotes a value that could be a secret.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import orjson
from pydantic import AfterValidator, BeforeValidator, Field

from cdc.outbox import Template, check_topic, parse_tables
from cdc.outbox.mapping import is_reserved

if TYPE_CHECKING:
    from collections.abc import Callable

_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_SINK: Final = re.compile(r"kafka|jsonl|[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME_FIELDS: Final = frozenset({"database", "slot"})
_HEADERS: Final = (
    'must be a JSON object of texts, such as {"eventType": "{event_type}"}, or a table'
    " [record.headers] in cdc.toml"
)


def column_names(text: str) -> tuple[str, ...]:
    """Return the alternatives of a column setting; empty text is none."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error:
        raise ValueError(
            'must be column names with commas between, quoted where needed: "a,b",c'
        ) from None
    names = tuple(name.strip() for name in rows[0]) if rows else ()
    if names == ("",):
        return ()
    if "" in names:
        raise ValueError("a name between two commas is missing")
    return names


def _some_column(text: str) -> None:
    if not column_names(text):
        raise ValueError("must not be empty")


def _slot_name(text: str) -> None:
    if not _SLOT_NAME.fullmatch(text):
        raise ValueError("must be 1 to 63 of a-z, 0-9 and _, as Postgres demands")


def _sink(text: str) -> None:
    if not _SINK.fullmatch(text):
        raise ValueError("must be kafka, jsonl or module:factory")


def _relay_name(text: str) -> None:
    fields = set(Template.parse(text).columns)
    if not text or not fields <= _NAME_FIELDS or not text.isprintable():
        raise ValueError("must be a text; {database} and {slot} may stand in it")


def _topic(text: str) -> None:
    template = Template.parse(text)
    # What stands between the columns has to be legal by itself.
    wrong = check_topic(
        template.literals if template.is_constant else "x" + template.literals
    )
    if wrong is not None:
        raise ValueError(f"{text!r} makes no legal topic: {wrong}")


def _topic_name(text: str) -> None:
    wrong = check_topic(text)
    if wrong is not None:
        raise ValueError(f"{text!r} is no legal topic: {wrong}")


def _listen(text: str) -> None:
    # The endpoint brings the metrics library along: only who listens needs it.
    from slots.endpoint import parse_listen  # noqa: PLC0415
    from slots.errors import BadListenAddress  # noqa: PLC0415

    try:
        parse_listen(text)
    except BadListenAddress as exc:
        raise ValueError(f"{exc}; write host:port, 127.0.0.1:8080 or [::1]:8080") from (
            None
        )


def _json_object(value: Any) -> Any:
    """Read JSON, as the environment has it; a table of a TOML file is one already."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise ValueError(_HEADERS) from None
    if not isinstance(value, dict):
        raise ValueError(_HEADERS)  # noqa: TRY004 - pydantic takes ValueError
    return value


def _headers(value: dict[str, Any]) -> None:
    for name, template in value.items():
        if not isinstance(template, str):
            raise ValueError(f"header {name!r} must be a text")  # noqa: TRY004 - as above
        Template.parse(template)
        if is_reserved(name):
            raise ValueError(f"header {name!r} is walferry's own")


def _unset(value: Any) -> Any:
    return None if value == "" else value


def _checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that lets a value through once it has been looked at."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


UNSET: Final = BeforeValidator(_unset)
"""Empty text is no value: what ``${NAME:-}`` of a compose file leaves behind."""

PositiveSeconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
RelayName: TypeAlias = Annotated[str, _checked(_relay_name)]
SlotName: TypeAlias = Annotated[str, _checked(_slot_name)]
Columns: TypeAlias = Annotated[str, _checked(column_names)]
RequiredColumns: TypeAlias = Annotated[str, _checked(_some_column)]
Tables: TypeAlias = Annotated[str, _checked(parse_tables)]
Topic: TypeAlias = Annotated[str, _checked(_topic)]
TopicName: TypeAlias = Annotated[str, _checked(_topic_name)]
Headers: TypeAlias = Annotated[
    dict[str, Any], BeforeValidator(_json_object), _checked(_headers)
]
SinkName: TypeAlias = Annotated[str, _checked(_sink)]
Listen: TypeAlias = Annotated[str, _checked(_listen)]
