"""The configuration files of a local Postgres, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Also for the postgres in front of a standby: it must not offer less than its primary.
_DEFAULTS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_prepared_transactions": "20",
    # Files of the data folder: a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}
PLUGIN_ALLOWANCE = "output_plugin_libraries"
_ALLOWED_PLUGINS = "pgoutput, test_decoding, wal2json"


def configuration(settings: Mapping[str, str], *, has_plugin_allowance: bool) -> str:
    """Return the text of a configuration file with our defaults under these settings.

    Args:
        settings: the server's own; they win.
        has_plugin_allowance: whether this server knows ``output_plugin_libraries``.
            Minors since August 2026 refuse wal2json without it, and those before
            refuse to start with it.

    """
    defaults = dict(_DEFAULTS)
    if has_plugin_allowance:
        defaults[PLUGIN_ALLOWANCE] = _ALLOWED_PLUGINS
    lines = (
        f"{name} = {_quoted(value)}"
        for name, value in (defaults | dict(settings)).items()
    )
    return "\n".join(lines) + "\n"


def access_rules(lines: Sequence[str]) -> str:
    """Return the text of pg_hba.conf: these lines, then trust for the rest."""
    trust = (
        "local all all trust",
        "local replication all trust",
        "host all all 127.0.0.1/32 trust",
        "host replication all 127.0.0.1/32 trust",
    )
    return "\n".join([*lines, *trust]) + "\n"


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
