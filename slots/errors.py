"""What can go wrong between us, a server and a slot.

::

    SlotError
    ├── ServerUnavailable     nobody answers, or the line broke        retry
    ├── ServerRefused         the server answered no (see sqlstate)    stop
    │   ├── AuthenticationRefused   password, certificate, pg_hba
    │   ├── PermissionDenied        a right is missing
    │   └── DatabaseMissing
    ├── BadConnectionSettings the DSN or a secret cannot be read       stop
    ├── BadWebhook            the webhook's address is none              stop
    ├── BadListenAddress      nobody can listen there                  stop
    ├── SlotMissing           no slot of that name                     stop
    ├── SlotLost              invalidated, its WAL is gone             stop
    ├── SlotNotReady          its creation waits for transactions      stop
    └── SlotBusy              another process streams from it          retry

Every class knows its fate (``retryable``) and the operator's next step (``hint``).
Messages are one line and never hold a secret.
"""

from __future__ import annotations


class SlotError(Exception):
    """Something about a slot or its server went wrong."""

    retryable = False
    hint = ""

    def __init__(
        self, message: str = "", *, hint: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0])
        if hint is not None:
            self.hint = hint
        self.sqlstate = sqlstate


class ServerUnavailable(SlotError):
    """Postgres cannot be reached."""

    retryable = True
    hint = "check host, port and firewall, and that the server runs"


class ServerRefused(SlotError):
    """Postgres refused the request."""


class AuthenticationRefused(ServerRefused):
    """Postgres refused the credentials."""

    hint = "check user, password or certificate, and the server's pg_hba.conf"


class PermissionDenied(ServerRefused):
    """The role lacks a right."""


class DatabaseMissing(ServerRefused):
    """The database does not exist."""

    hint = "check the database name in the DSN"


class BadConnectionSettings(SlotError):
    """The connection settings cannot be used."""

    hint = "check CDC_POSTGRES__DSN (or --dsn) and the password file or command"


class BadWebhook(SlotError):
    """The webhook's address cannot be used."""

    hint = "write it as https://host/path"


class BadListenAddress(SlotError):
    """Nobody can listen on that address."""

    hint = "take another address or port; 127.0.0.1:0 is any free port"


class SlotMissing(SlotError):
    """The replication slot does not exist."""


class SlotLost(SlotError):
    """The replication slot has been invalidated; the WAL it needed is gone."""


class SlotNotReady(SlotError):
    """The slot's creation waited for open transactions for too long."""

    hint = "end the transactions that `slots why` names, then try again"


class SlotBusy(SlotError):
    """Another process streams from the replication slot."""

    retryable = True
