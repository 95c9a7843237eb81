"""What a server's error inside a stream means, by SQLSTATE and never by text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg.errors import error_from_result

from cdc.errors import CdcError, DecodingFailed, RequirementMissing, StreamLost

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_GONE: Final = ("08", "57P", "53300", "55000", "55006", "58P01")
"""The line, the server or the slot went away. Whether the slot is lost is told by its
row, which is read before the next attempt: an invalidated slot's consumer is only told
57P01, as after pg_terminate_backend."""

_REMEDIES: Final = {
    # The publication is looked up as it was when the row was written.
    "42704": "make the publication again, or set CDC_SLOT__PUBLICATION; if it exists by"
    " now, rows were written while it did not: cdc resnapshot, or with a position"
    " behind them: cdc adopt --accept-gap LSN",
    "42501": "run `cdc check`: a right or output_plugin_libraries is missing",
    "0A000": "run `cdc check`: publications with different column lists, or a plugin"
    " that lacks a feature",
    "42601": "run `cdc check`",
    "22023": "run `cdc check`: the plugin does not know one of the options",
}


def server_error(result: PGresult) -> CdcError:
    """Turn the error that ended a stream into ours."""
    error = error_from_result(result)
    sqlstate = error.sqlstate or ""
    text = " ".join((error.diag.message_primary or str(error)).split())
    shown = f"{text} (SQLSTATE {sqlstate})"
    if sqlstate.startswith(_GONE) or not sqlstate:
        return StreamLost(f"the server ended the stream: {shown}")
    if sqlstate in _REMEDIES:
        return RequirementMissing(
            f"the server refused to go on: {shown}", hint=_REMEDIES[sqlstate]
        )
    return DecodingFailed(f"the server cannot decode what comes next: {shown}")
