"""What can end a session of the relay, and what is done about it.

::

    CdcError
    ├── SettingsError         a setting is wrong                        exit 2
    ├── RequirementMissing    something the run needs is not there      exit 3
    ├── OperatorNeeded        slot missing, lost or moved               exit 4
    ├── FirstStart            no slot yet, and rows are to be published resnapshot
    ├── DecodeError           bytes that are not what they should be    exit 5
    ├── MappingError          a row that cannot become an event         exit 5
    │   └── ColumnMissing     a mapped column is not in the WAL         exit 3
    ├── RecordRefused         the broker will never take this record    exit 5
    ├── Undelivered           stopped with events unacknowledged        exit 5
    ├── SlotWaitExpired       somebody else kept the slot too long      exit 6
    ├── StreamLost            the replication connection broke          retry
    ├── DecodingFailed        the server cannot decode a transaction    retry, alarm
    ├── SinkUnavailable       the broker is away                        retry
    ├── SinkUncertain         a send whose outcome is unknown           retry
    └── SinkDenied            the broker refused our credentials   retry (3 at start)

Every class knows its fate (``retryable``, ``exit_code``), a short ``kind`` for metrics
and logs, and the operator's next step (``hint``). Messages are one line, name what is
wrong and where, and never hold a payload or a secret.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from slots import errors as slot_errors

if TYPE_CHECKING:
    from slots.lsn import Lsn


class ExitCode(enum.IntEnum):
    """Exit codes of ``cdc run``; other people's scripts read them."""

    CLEAN = 0
    FAILED = 1
    USAGE = 2
    REQUIREMENT = 3
    OPERATOR = 4
    UNACKNOWLEDGED = 5
    SLOT_WAIT = 6


class Disposition(enum.Enum):
    """What the supervisor does with an error that ended a session."""

    RETRY = "retry"
    RESNAPSHOT = "resnapshot"
    STOP = "stop"


class CdcError(Exception):
    """Something the relay cannot go on with."""

    kind = "error"
    retryable = False
    exit_code = ExitCode.FAILED
    hint = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0])
        if hint is not None:
            self.hint = hint


class SettingsError(CdcError):
    """A setting is missing, unknown or wrong."""

    kind = "settings"
    exit_code = ExitCode.USAGE


class RequirementMissing(CdcError):
    """Something the run needs is not there."""

    kind = "requirement"
    exit_code = ExitCode.REQUIREMENT
    hint = "run `cdc check` for every requirement with its remedy"


class OperatorNeeded(CdcError):
    """The slot is not as we left it; somebody has to decide."""

    kind = "operator"
    exit_code = ExitCode.OPERATOR


class FirstStart(CdcError):
    """There is no slot yet; it is to be made with a snapshot of the rows there are."""

    kind = "first_start"
    exit_code = ExitCode.REQUIREMENT


class DecodeError(CdcError):
    """Bytes from the server are not what the protocol says."""

    kind = "decode"
    exit_code = ExitCode.UNACKNOWLEDGED
    hint = "nothing was skipped and the slot stays where it is; please report this line"


class MappingError(CdcError):
    """A row cannot become an event."""

    kind = "mapping"
    exit_code = ExitCode.UNACKNOWLEDGED


class ColumnMissing(MappingError):
    """A mapped column is not in the table's layout."""

    kind = "column_missing"
    exit_code = ExitCode.REQUIREMENT
    hint = (
        "map the column's present name; while rows written before a rename are still"
        " in the WAL, list both: CDC_OUTBOX__COLUMNS__KEY=old,new"
    )


class RecordRefused(CdcError):
    """The broker will never take this record."""

    kind = "record_refused"
    exit_code = ExitCode.UNACKNOWLEDGED


class Undelivered(CdcError):
    """Stopped with events that the broker has not acknowledged."""

    kind = "undelivered"
    exit_code = ExitCode.UNACKNOWLEDGED
    hint = "nothing is lost: the slot still holds them, the next start sends them again"


class SlotWaitExpired(CdcError):
    """Another process kept the slot for longer than we may wait."""

    kind = "slot_wait"
    exit_code = ExitCode.SLOT_WAIT


class StreamLost(CdcError):
    """The replication connection broke."""

    kind = "stream"
    retryable = True
    exit_code = ExitCode.REQUIREMENT


class DecodingFailed(CdcError):
    """The server failed to decode a transaction.

    Attributes:
        commit_lsn: where the transaction commits, if that was told before.

    """

    kind = "server_decode"
    retryable = True
    exit_code = ExitCode.UNACKNOWLEDGED
    hint = "the server's log has the details; the slot stays where it is"

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        commit_lsn: Lsn | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.commit_lsn = commit_lsn


class SinkUnavailable(CdcError):
    """The broker cannot be reached."""

    kind = "sink_unavailable"
    retryable = True
    exit_code = ExitCode.REQUIREMENT
    hint = "check CDC_KAFKA__BOOTSTRAP_SERVERS and that the broker runs"


class SinkUncertain(CdcError):
    """A send has failed or its outcome is unknown; the events are sent again."""

    kind = "sink_uncertain"
    retryable = True
    exit_code = ExitCode.REQUIREMENT


class SinkDenied(CdcError):
    """The broker refused our credentials or our rights."""

    kind = "sink_denied"
    retryable = True
    exit_code = ExitCode.REQUIREMENT
    hint = "check the SASL and TLS settings of the broker, and its ACLs"


def disposition(exc: BaseException, *, has_streamed: bool) -> Disposition:
    """Tell what to do about the error that ended a session.

    Args:
        exc: what ended it; anything we do not know is a STOP.
        has_streamed: whether this process has streamed before. Credentials that are
            refused or cannot be read are a mistake at the first start and a rotation
            in progress afterwards.

    """
    match exc:
        case (
            SinkDenied()
            | slot_errors.AuthenticationRefused()
            | slot_errors.BadConnectionSettings()
        ):
            return Disposition.RETRY if has_streamed else Disposition.STOP
        case FirstStart():
            return Disposition.RESNAPSHOT
        case CdcError() | slot_errors.SlotError() if exc.retryable:
            return Disposition.RETRY
        case _:
            return Disposition.STOP


_SLOT_EXIT_CODES: tuple[tuple[type[slot_errors.SlotError], ExitCode], ...] = (
    (slot_errors.SlotLost, ExitCode.OPERATOR),
    (slot_errors.BadConnectionSettings, ExitCode.USAGE),
    (slot_errors.SlotBusy, ExitCode.SLOT_WAIT),
    (slot_errors.SlotError, ExitCode.REQUIREMENT),
)


def exit_code(exc: BaseException, *, has_streamed: bool) -> ExitCode:
    """Tell the exit code of a run that this error ends (design: the fault table)."""
    if isinstance(exc, CdcError):
        return exc.exit_code
    if isinstance(exc, slot_errors.SlotMissing) and has_streamed:
        return ExitCode.OPERATOR
    for error_class, code in _SLOT_EXIT_CODES:
        if isinstance(exc, error_class):
            return code
    return ExitCode.FAILED
