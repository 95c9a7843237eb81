"""What every command does first: settings, log, event loop.

Whatever is heavy is imported inside, here too: ``cdc --help`` has to be quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cdc.settings import Settings

_CYCLE_THRESHOLDS: Final = (20_000, 20, 50)
"""Some 3,000 rows are made between two looks; Python's own is 700, less than 100."""

debugging = {"on": False}
"""Whether tracebacks are wanted."""


def settings_in_force() -> Settings:
    """Read all settings."""
    from cdc.settings import load_settings  # noqa: PLC0415

    return load_settings()


def set_up_logs_of(settings: Settings, *, only_errors: bool = False) -> None:
    """Set up the log; only errors for commands whose answer is on stdout."""
    from cdc.app import relay_name  # noqa: PLC0415
    from cdc.app.logs import set_up_logs  # noqa: PLC0415

    quiet = only_errors and not debugging["on"]
    set_up_logs(settings, name=relay_name(settings), only_errors=quiet)


def look_for_cycles_rarely() -> None:
    """Have Python's cycle collector leave alone what lives as long as the process.

    Of what a row becomes nothing is in a cycle, yet looking through it, and through all
    modules again and again, took a sixth of the CPU of a catch-up. For a process that
    is one relay, and no other.
    """
    import gc  # noqa: PLC0415

    gc.freeze()
    gc.set_threshold(*_CYCLE_THRESHOLDS)


def run_to_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a command's work in a loop of its own."""
    import asyncio  # noqa: PLC0415

    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # there is none for this platform
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
