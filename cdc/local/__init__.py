"""A Postgres and a Kafka of one's own, for the demo, the tests and the benchmarks.

Servers started here listen on loopback only, keep everything they write in folders of
their own, and are gone with the process that started them, however that one ends.
They never touch a server that runs already.
"""

from cdc.local.kafka import LocalKafka
from cdc.local.kafka_jars import DEFAULT_KAFKA_VERSION
from cdc.local.listeners import Listener
from cdc.local.ports import PortLease
from cdc.local.postgres import LocalPostgres

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "Listener",
    "LocalKafka",
    "LocalPostgres",
    "PortLease",
]
