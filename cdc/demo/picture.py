"""The demo's live picture: committed, acknowledged, lag, and what has just come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

_WIDTH = 40


class Picture:
    """Drawn in place on a terminal; a plain line now and then where there is none."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=8)
        self._said = -1

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        self._console.print(Text(f"demo: {text}"), soft_wrap=True)

    def show(
        self,
        *,
        total: int,
        committed: int,
        acknowledged: int,
        lag_bytes: int,
        latest: Sequence[str],
    ) -> None:
        """Draw the present state."""
        if self._console.is_terminal:
            table = Table.grid(padding=(0, 2))
            table.add_row("committed", _bar(committed, total), f"{committed:,}")
            table.add_row(
                "acknowledged", _bar(acknowledged, total), f"{acknowledged:,}"
            )
            table.add_row("slot lag", "", f"{lag_bytes / 1024:,.0f} KiB")
            self._live.update(Group(table, Text("\n".join(latest), style="dim")))
            return
        tenth = acknowledged * 10 // max(total, 1)
        if tenth != self._said:
            self._said = tenth
            self.say(
                f"{committed} committed, {acknowledged} acknowledged,"
                f" slot lag {lag_bytes} bytes"
                + (f"; last: {' '.join(latest[-1].split())}" if latest else "")
            )


def _bar(value: int, total: int) -> Text:
    filled = min(_WIDTH, value * _WIDTH // max(total, 1))
    return Text("█" * filled + "░" * (_WIDTH - filled), style="cyan")
