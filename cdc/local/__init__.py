"""A Postgres and a Kafka of one's own, for the demo, the tests and the benchmarks.

Servers started here listen on loopback only, keep everything they write in folders of
their own, and are gone with the process that started them, however that one ends.
They never touch a server that runs already.
"""

from cdc.local.ports import PortLease
from cdc.local.postgres import LocalPostgres

__all__ = ["LocalPostgres", "PortLease"]
