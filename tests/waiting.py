"""Waiting in tests: for a condition, up to a deadline, never for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_POLL_S = 0.02
T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], deadline_s: float = ..., *, what: str = ...
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T], deadline_s: float = ..., *, what: str = ...
) -> T: ...


async def eventually(
    condition: Callable[[], Any], deadline_s: float = 10.0, *, what: str = ""
) -> Any:
    """Return the first true value of a condition; fail when the deadline passes.

    Args:
        condition: a function, plain or async; an AssertionError counts as false.
        deadline_s: how long it may take.
        what: what is waited for, for the message.

    """
    deadline = time.monotonic() + deadline_s
    while True:
        seen: object
        try:
            value = condition()
            result = await value if inspect.isawaitable(value) else value
            if result:
                return result
            seen = result
        except AssertionError as exc:
            seen = exc
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"not within {deadline_s} s: {name}; last: {seen!r}")
        await asyncio.sleep(_POLL_S)
