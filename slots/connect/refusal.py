"""Why a connection did not come about, told from what libpq says of it.

A refused connection has no SQLSTATE in libpq's interface: there is the text, in the
server's language, and there is PQping, which knows in any language whether a server
answers, and whether it is starting or stopping. So texts are looked at first, in the
server's own words, and where they are not known PQping decides what can be decided.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from psycopg import pq

from slots.errors import (
    AuthenticationRefused,
    BadConnectionSettings,
    DatabaseMissing,
    PermissionDenied,
    ServerRefused,
    ServerUnavailable,
    SlotError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_POOLER: Final = (
    "this looks like a connection pooler: give the Postgres server's own address, what"
    " is needed here does not pass a pooler"
)
_REPLICATION: Final = (
    "ALTER ROLE ... REPLICATION (Amazon RDS and Aurora: GRANT rds_replication TO ...)"
)
_FILES: Final = "check sslmode, sslrootcert, sslcert, sslkey and service in the DSN"
_TRANSPORT: Final = "check sslmode and sslrootcert in the DSN, and the certificates"
_NO_ROOM: Final = "raise max_connections or max_wal_senders, or close connections"
_CONNECT: Final = "GRANT CONNECT ON DATABASE ... TO ..."
_OPTIONS: Final = "check options in the DSN, and PGOPTIONS"
_SOON: Final = "the server is starting, stopping or recovering"
_ROLE: Final = (
    "no host of the DSN is what target_session_attrs asks for; during a failover that"
    " passes"
)

# Words of libpq (fe-connect.c, fe-secure-openssl.c), of the server (auth.c, postinit.c,
# postmaster.c, proc.c, walsender.c) and of pgbouncer, with every quoted name taken out.
# The first match counts.
_WORDS: Final[tuple[tuple[str, type[SlotError], str | None], ...]] = (
    ("unsupported startup parameter", ServerRefused, _POOLER),
    ("no such database|no such user|bouncer", ServerRefused, _POOLER),
    ("exceeds max_wal_senders|too many", ServerUnavailable, _NO_ROOM),
    ("connection slots are reserved", ServerUnavailable, _NO_ROOM),
    ("database system is|terminating connection", ServerUnavailable, _SOON),
    ("authentication due to timeout", ServerUnavailable, None),
    ("session is (not )?read-only|hot standby mode", ServerUnavailable, _ROLE),
    (
        "Connection refused|timeout expired|resolve|No such file",
        ServerUnavailable,
        None,
    ),
    ("server closed|reset by peer|unreachable|No route", ServerUnavailable, None),
    ("database .*does not exist", DatabaseMissing, None),
    ("role .*does not exist|not permitted to log in", AuthenticationRefused, None),
    ("start (walsender|WAL sender)", PermissionDenied, _REPLICATION),
    ("permission denied for database", PermissionDenied, _CONNECT),
    (" file .*(does not exist|group or world)", BadConnectionSettings, _FILES),
    ("could not (read|load|open) .*file", BadConnectionSettings, _FILES),
    ("definition of service|does not support SSL", BadConnectionSettings, _FILES),
    ("invalid .*(value|number|option)|credential", BadConnectionSettings, None),
    ("configuration parameter|parameter .*cannot", BadConnectionSettings, _OPTIONS),
    ("certificate|SSL error|tls", AuthenticationRefused, _TRANSPORT),
    ("channel binding|SASL", AuthenticationRefused, None),
    (r"authentication|no password|pg_hba\.conf", AuthenticationRefused, None),
)
_SEVERITY: Final = re.compile(r"\b(FATAL|PANIC): +(?:[0-9A-Z]{5}: )?")
_PREFIX: Final = re.compile(
    r"(?:connection (?:failed|is bad): )?connection to server (?:at|on socket)"
    r' "[^"]*"(?: \([^)]*\))?(?:, port \d+)? failed: |connection is bad: '
)
_ATTEMPT: Final = re.compile(
    r" - host: '([^']*)', port: '([^']*)', hostaddr: '[^']*': "
)
_QUOTED: Final = re.compile(r'"[^"]*"')
_ADVICE: Final = re.compile(r" Is the server running .*$")


def refusal(
    where: str, text: str, *, used_password: bool, ping: Callable[[], pq.Ping]
) -> SlotError:
    """Return our error for a connection that did not come about.

    Args:
        where: the target's address.
        text: what libpq says, one line without secrets. With several hosts, what it
            says of each: if one of them may come back, the whole is worth a retry.
        used_password: the server had asked for a password, and had been given one.
        ping: asked only when the words are not known; it blocks.

    """
    attempts = _attempts(text)
    found = [_classify(said) for _, said in attempts]
    worth_retry = [one for one in found if one and one[0].retryable]
    known = next(iter(worth_retry), None) or next((one for one in found if one), None)
    error_class, hint = known or _by_ping(ping(), used_password=used_password)
    if len(attempts) == 1:
        said = attempts[0][1]
    else:
        said = "; ".join(f"{place}: {said}" for place, said in attempts)
    return error_class(f"{where}: {said}", hint=hint)


def _attempts(text: str) -> list[tuple[str, str]]:
    """Split into places and what was said there."""
    pieces = _ATTEMPT.split(text)
    if len(pieces) == 1:
        return [("", _bare(text))]
    attempts = zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True)
    return [(f"{host}:{port}", _bare(said)) for host, port, said in attempts]


def _classify(text: str) -> tuple[type[SlotError], str | None] | None:
    nameless = _QUOTED.sub('""', text)
    for words, error_class, hint in _WORDS:
        if re.search(words, nameless):
            return error_class, hint
    return None


def _by_ping(
    answer: pq.Ping, *, used_password: bool
) -> tuple[type[SlotError], str | None]:
    if answer is pq.Ping.REJECT:
        return ServerUnavailable, _SOON
    if answer is not pq.Ping.OK:
        return ServerUnavailable, None
    # Most likely the password; and a rotated one is retried, which a refusal for an
    # unknown reason is not.
    return (AuthenticationRefused if used_password else ServerRefused), None


def _bare(text: str) -> str:
    """Leave out what the address says already, and what is said twice.

    With sslmode=prefer a refusal comes once for TLS and once without.
    """
    said = [_ADVICE.sub("", _SEVERITY.sub("", one)) for one in _PREFIX.split(text)]
    return "; ".join(dict.fromkeys(one.strip() for one in said if one.strip()))
