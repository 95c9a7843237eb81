"""What libpq says of a refused connection becomes one of our errors."""

from __future__ import annotations

import pytest
from psycopg import pq

from slots import errors
from slots.connect.refusal import refusal

AT = 'connection failed: connection to server at "h" (10.0.0.1), port 5432 failed: '


def judged(
    text: str, answer: pq.Ping = pq.Ping.OK, *, used_password: bool = False
) -> errors.SlotError:
    return refusal("h:1/d as u", text, used_password=used_password, ping=lambda: answer)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Connection refused Is the server running on it?", "ServerUnavailable"),
        ("timeout expired", "ServerUnavailable"),
        ("server closed the connection unexpectedly", "ServerUnavailable"),
        ("FATAL: the database system is starting up", "ServerUnavailable"),
        ("FATAL: the database system is in recovery mode", "ServerUnavailable"),
        ("FATAL: the database system is shutting down", "ServerUnavailable"),
        ("FATAL: sorry, too many clients already", "ServerUnavailable"),
        (
            "FATAL: remaining connection slots are reserved for x",
            "ServerUnavailable",
        ),
        (
            "FATAL: requested standby connections exceeds max_wal_senders",
            "ServerUnavailable",
        ),
        ("FATAL: terminating connection due to administrator", "ServerUnavailable"),
        ("session is read-only", "ServerUnavailable"),
        ("server is in hot standby mode", "ServerUnavailable"),
        ('FATAL: password authentication failed for user "u"', "AuthenticationRefused"),
        ("fe_sendauth: no password supplied", "AuthenticationRefused"),
        ('FATAL: no pg_hba.conf entry for host "h"', "AuthenticationRefused"),
        ('FATAL: role "u" does not exist', "AuthenticationRefused"),
        ('FATAL: role "u" is not permitted to log in', "AuthenticationRefused"),
        ("SSL error: certificate verify failed", "AuthenticationRefused"),
        (
            'server certificate for "a" does not match host name "b"',
            "AuthenticationRefused",
        ),
        ('root certificate file "/x" does not exist', "BadConnectionSettings"),
        (
            'private key file "/x" has group or world access; it must',
            "BadConnectionSettings",
        ),
        ('could not read root certificate file "/x"', "BadConnectionSettings"),
        ("server does not support SSL, but SSL was required", "BadConnectionSettings"),
        ('definition of service "s" not found', "BadConnectionSettings"),
        ('invalid sslmode value: "banana"', "BadConnectionSettings"),
        (
            'FATAL: unrecognized configuration parameter "foo"',
            "BadConnectionSettings",
        ),
        ('FATAL: database "password" does not exist', "DatabaseMissing"),
        ("FATAL: permission denied to start WAL sender DETAIL: x", "PermissionDenied"),
        (
            "FATAL: must be superuser or replication role to start walsender",
            "PermissionDenied",
        ),
        ('FATAL: permission denied for database "d"', "PermissionDenied"),
        ("FATAL: unsupported startup parameter: options", "ServerRefused"),
        ("FATAL: something new", "ServerRefused"),
    ],
)
def test_known_words_are_told_apart(said: str, expected: str) -> None:
    error = judged(AT + said)

    assert type(error).__name__ == expected
    assert str(error).startswith("h:1/d as u: ")
    assert "connection to server" not in str(error)
    assert "FATAL" not in str(error)


def test_what_is_said_twice_is_shown_once() -> None:
    error = judged(
        AT + "FATAL: no such thing " + AT.removeprefix("x") + "no such thing"
    )

    assert str(error) == "h:1/d as u: no such thing"


def test_a_pooler_is_recognised_and_the_remedy_named() -> None:
    error = judged("FATAL: unsupported startup parameter: options")

    assert "pooler" in error.hint


@pytest.mark.parametrize(
    ("answer", "used_password", "expected"),
    [
        (pq.Ping.REJECT, False, errors.ServerUnavailable),
        (pq.Ping.NO_RESPONSE, False, errors.ServerUnavailable),
        (pq.Ping.NO_ATTEMPT, False, errors.ServerUnavailable),
        (pq.Ping.OK, True, errors.AuthenticationRefused),
        (pq.Ping.OK, False, errors.ServerRefused),
    ],
)
def test_words_in_another_language_are_left_to_ping(
    answer: pq.Ping,
    used_password: bool,  # noqa: FBT001 - a table's column
    expected: type[errors.SlotError],
) -> None:
    error = judged(AT + "ВАЖНО: чтото", answer, used_password=used_password)

    assert type(error) is expected


def several(*said: str) -> str:
    listed = " ".join(
        f"- host: 'h{number}', port: '1', hostaddr: 'x': {AT}{text}"
        for number, text in enumerate(said)
    )
    return f"last Multiple connection attempts failed. All failures were: {listed}"


def test_of_several_hosts_one_that_may_come_back_is_worth_a_retry() -> None:
    error = judged(several("FATAL: no pg_hba.conf entry", "Connection refused"))

    assert type(error) is errors.ServerUnavailable
    assert "h0:1: no pg_hba.conf entry; h1:1: Connection refused" in str(error)


def test_of_several_hosts_that_all_refuse_the_first_reason_counts() -> None:
    error = judged(several('FATAL: database "d" does not exist', "FATAL: other"))

    assert type(error) is errors.DatabaseMissing
