"""What a run needs from Postgres: tested one by one, demanded at the start, made.

``check`` says how every requirement stands, ``require`` ends a start at the first one
that fails, ``still_covered`` looks again while the relay runs, ``init`` makes what is
missing. All of them use the same judgements, which are pure functions of what a few
catalog queries return. A role with LOGIN and REPLICATION can do all but ``init``.
"""

from cdc.requirements.checking import check
from cdc.requirements.making import init
from cdc.requirements.start import require, still_covered
from cdc.requirements.statements import init_statements
from cdc.requirements.tables import partition_root
from cdc.requirements.wanted import SourceFacts, Wanted

__all__ = [
    "SourceFacts",
    "Wanted",
    "check",
    "init",
    "init_statements",
    "partition_root",
    "require",
    "still_covered",
]
