"""The record a relay keeps between runs: how far it is, and on which history.

It is JSON in a store (a Kafka topic, a file beside the events, a table). Fields are
added, never renamed: an older record is read by a newer relay.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cdc.position.fields import items, number, text, texts_by_name
from slots.lsn import ZERO, Lsn

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
_XID: Final = (1 << 32) - 1
_HALF: Final = 1 << 31
_SNAPSHOT: Final = re.compile(r"[0-9]+:[0-9]+:([0-9]+(,[0-9]+)*)?")


class Anchor(NamedTuple):
    """The last transaction that had events and is acknowledged.

    On our history, and only there, a transaction with this xid ends exactly here.
    """

    end_lsn: Lsn
    xid: int
    committed_at_us: int
    """Microseconds since 1970: tells the transaction from a namesake."""
    event_id: str = ""
    """Of its last event: a row with it is a witness while the table keeps it."""


class Sample(NamedTuple):
    """What the server said of its transactions at one moment, in one statement.

    Every transaction below ``xmin`` has committed below ``lsn`` (the insert position);
    none at or above ``xmax`` had begun at ``at_ms`` (milliseconds since 1970).
    """

    xmin: int
    xmax: int
    lsn: Lsn
    at_ms: int


class Overlap(NamedTuple):
    """Transactions that the stream brings although a resnapshot has published them.

    They are those that commit before ``until`` and that the snapshot shows; its text is
    Postgres' own, ``xmin:xmax:xip,xip``. Only ids of whole transactions may be asked
    about: a snapshot does not list those of savepoints.
    """

    snapshot: str
    until: Lsn

    def shows(self, xid: int) -> bool:
        """Tell whether the snapshot shows a committed transaction.

        Args:
            xid: 32 bits, as the stream has it; less than two billion transactions away.

        """
        xmin, xmax, running = self.snapshot.split(":")
        since_xmax = (xid - int(xmax)) & _XID
        if since_xmax < _HALF:
            return False
        full = int(xmax) - (_XID + 1 - since_xmax)
        return full < int(xmin) or str(full) not in running.split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A resnapshot under way: the slot is ours to drop and make again.

    Attributes:
        run_id: stands in the ``cdc.replay`` header of what it publishes.
        bounds: as the operator gave them, to go on with the same after a crash.
        began_at_ms: nothing was published under this run before.

    """

    run_id: str
    bounds: Mapping[str, str]
    began_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a relay is.

    Attributes:
        name: of the relay, the key of the record.
        term: counts its starts.
        epoch: first part of ``cdc.position``; raised on another history.
        system_id: of the cluster.
        timeline: of the cluster.
        database: of the slot.
        slot: its name.
        plugin: its output plugin.
        end_lsn: everything up to here is acknowledged; the slot is never confirmed
            beyond it.
        anchor: None before the first event.
        horizon: a full transaction id; rows of every older transaction are
            acknowledged. None while nothing is certain.
        samples: newest last; what the next horizon is made of.
        fingerprint: what the publication is made of; empty for a plugin without one.
        stored_at_ms: when this was written, milliseconds since 1970.
        unfinished: a resnapshot that has not come to its end.
        overlap: what the stream brings once more behind a resnapshot; None for nothing.
        given_up: events that commit below it and have not been delivered are not to
            be; the server may forget that the slot was moved there.
        doubt: why this history may not be ours; empty when nothing speaks against it.
        recovered: causes of slot loss that have been answered automatically.

    """

    name: str
    term: int
    epoch: int
    system_id: str
    timeline: int
    database: str
    slot: str
    plugin: str
    end_lsn: Lsn
    anchor: Anchor | None = None
    horizon: int | None = None
    samples: tuple[Sample, ...] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    stored_at_ms: int = 0
    unfinished: Unfinished | None = None
    overlap: Overlap | None = None
    given_up: Lsn = ZERO
    doubt: str = ""
    recovered: tuple[str, ...] = ()

    def document(self) -> bytes:
        """Return the record as JSON."""
        anchor, unfinished = self.anchor, self.unfinished
        return json.dumps(
            {
                "version": VERSION,
                "name": self.name,
                "term": self.term,
                "epoch": self.epoch,
                "system_id": self.system_id,
                "timeline": self.timeline,
                "database": self.database,
                "slot": self.slot,
                "plugin": self.plugin,
                "end_lsn": str(self.end_lsn),
                "anchor": anchor
                and [
                    str(anchor.end_lsn),
                    anchor.xid,
                    anchor.committed_at_us,
                    anchor.event_id,
                ],
                "horizon": self.horizon,
                "samples": [
                    [one.xmin, one.xmax, str(one.lsn), one.at_ms]
                    for one in self.samples
                ],
                "fingerprint": dict(self.fingerprint),
                "stored_at_ms": self.stored_at_ms,
                "unfinished": unfinished
                and {
                    "run_id": unfinished.run_id,
                    "bounds": dict(unfinished.bounds),
                    "began_at_ms": unfinished.began_at_ms,
                },
                "overlap": self.overlap
                and [self.overlap.snapshot, str(self.overlap.until)],
                "given_up": str(self.given_up),
                "doubt": self.doubt,
                "recovered": list(self.recovered),
            },
            separators=(",", ":"),
        ).encode()


def parse(document: bytes) -> Position:
    """Read a record.

    Raises:
        ValueError: it is none, or of a version that this relay does not know. What it
            says is never guessed at: a wrong position is worse than none.

    """
    try:
        found: dict[str, Any] = json.loads(document)
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r} is not {VERSION}")
        return _position(found)
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ValueError(f"{type(exc).__name__}: {exc}") from exc


def _position(found: dict[str, Any]) -> Position:
    horizon = found.get("horizon")
    return Position(
        name=text(found["name"]),
        term=number(found["term"]),
        epoch=number(found["epoch"]),
        system_id=text(found["system_id"]),
        timeline=number(found["timeline"]),
        database=text(found["database"]),
        slot=text(found["slot"]),
        plugin=text(found["plugin"]),
        end_lsn=Lsn.parse(found["end_lsn"]),
        anchor=_anchor(found.get("anchor")),
        horizon=None if horizon is None else number(horizon),
        samples=tuple(_sample(one) for one in items(found.get("samples", []))),
        fingerprint=texts_by_name(found.get("fingerprint", {})),
        stored_at_ms=number(found.get("stored_at_ms", 0)),
        unfinished=_unfinished(found.get("unfinished")),
        overlap=_overlap(found.get("overlap")),
        given_up=Lsn.parse(found.get("given_up", "0/0")),
        doubt=text(found.get("doubt", "")),
        recovered=tuple(text(one) for one in items(found.get("recovered", []))),
    )


def _anchor(found: Any) -> Anchor | None:
    if found is None:
        return None
    end_lsn, xid, committed_at_us, event_id = items(found)
    return Anchor(
        Lsn.parse(end_lsn), number(xid), number(committed_at_us), text(event_id)
    )


def _sample(found: Any) -> Sample:
    xmin, xmax, lsn, at_ms = items(found)
    return Sample(number(xmin), number(xmax), Lsn.parse(lsn), number(at_ms))


def _unfinished(found: Any) -> Unfinished | None:
    if found is None:
        return None
    return Unfinished(
        run_id=text(found["run_id"]),
        bounds=texts_by_name(found["bounds"]),
        began_at_ms=number(found["began_at_ms"]),
    )


def _overlap(found: Any) -> Overlap | None:
    if found is None:
        return None
    snapshot, until = items(found)
    if _SNAPSHOT.fullmatch(text(snapshot)) is None:
        raise ValueError(f"{snapshot!r} is no snapshot")
    return Overlap(snapshot, Lsn.parse(until))
