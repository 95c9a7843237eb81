"""A connection to Postgres with our pins, for ordinary work and for replication.

Everything about *how* to get in (TLS, several hosts, service files, passfile) is
libpq's. What is added: pins against role and database defaults (they reach replication
sessions too), TCP keepalive, secrets that are read anew at every connect, and errors of
our own that never hold a secret.
"""

from slots.connect.connection import PINS, connect
from slots.connect.patience import answer_of
from slots.connect.target import Target, address
from slots.connect.translation import from_driver, translated

__all__ = [
    "PINS",
    "Target",
    "address",
    "answer_of",
    "connect",
    "from_driver",
    "translated",
]
