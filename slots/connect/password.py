"""Passwords that are read anew at every connect, from a file or from a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from typing import TYPE_CHECKING, Final

from slots.errors import BadConnectionSettings

if TYPE_CHECKING:
    from pathlib import Path

    from slots.connect.target import Target

COMMAND_LIMIT_S: Final = 30.0
"""A cloud's token service answers in a second or two; a hanging one must not hold a
reconnect for ever."""


async def current_password(target: Target) -> str | None:
    """Read the password file or run the command; None when neither is set.

    Raises:
        BadConnectionSettings: it cannot be had, or is empty. What was read is not said.

    """
    if target.password_file is not None:
        password = await asyncio.to_thread(_from_file, target.password_file)
        source = f"password file {target.password_file}"
    elif target.password_command is not None:
        password = await _from_command(target.password_command)
        source = "the password command's output"
    else:
        return None
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise BadConnectionSettings(f"{source} is empty")
    if "\0" in password:
        raise BadConnectionSettings(f"{source} holds a NUL byte")
    return password


def _from_file(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    raise BadConnectionSettings(f"password file {path}: {reason}")


async def _from_command(command: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError, TypeError) as exc:
        # The command line may hold a secret itself; the error's text quotes it.
        reason = getattr(exc, "strerror", None) or "it is empty or badly quoted"
    else:
        return await _output(process)
    raise BadConnectionSettings(f"the password command cannot be run: {reason}")


async def _output(process: asyncio.subprocess.Process) -> str:
    try:
        async with asyncio.timeout(COMMAND_LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise BadConnectionSettings(
            f"the password command took over {COMMAND_LIMIT_S:g} s"
        ) from None
    finally:
        if process.returncode is None:
            # With everything that it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise BadConnectionSettings(
            f"the password command failed with exit code {process.returncode}"
        )
    try:
        return output.decode()
    except UnicodeDecodeError:
        pass  # the error quotes what it could not read
    raise BadConnectionSettings("the password command's output is not UTF-8 text")
