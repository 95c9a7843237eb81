"""Which topic names Kafka takes, known without asking a broker."""

from __future__ import annotations

import re

MAX_TOPIC_LENGTH = 249
_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic(name: str) -> str | None:
    """Return what is wrong with a topic name, or None when it is legal.

    Source: Kafka's Topic.validate: 1 to 249 of ``a-z A-Z 0-9 . _ -``, not ``.``, not
    ``..``.
    """
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are no topic names"
    if not _CHARACTERS.fullmatch(name):
        return "only a-z A-Z 0-9 . _ - are allowed"
    if len(name) > MAX_TOPIC_LENGTH:
        return f"{len(name)} characters, {MAX_TOPIC_LENGTH} are allowed"
    return None
