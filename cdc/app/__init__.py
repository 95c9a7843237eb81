"""The only place where settings become objects."""

from cdc.app.operations import adopt_server, check_all, make_source, prune_once
from cdc.app.parts import (
    constant_topics,
    relay_name,
    sink_of,
    source_of,
    store_of,
    target_of,
)
from cdc.app.service import run_relay

__all__ = [
    "adopt_server",
    "check_all",
    "constant_topics",
    "make_source",
    "prune_once",
    "relay_name",
    "run_relay",
    "sink_of",
    "source_of",
    "store_of",
    "target_of",
]
