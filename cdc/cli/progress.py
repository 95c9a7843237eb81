"""The progress of a republishing: a bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdc.republishing import Progress


@contextmanager
def shown(what: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress on stderr while the block runs."""
    if sys.stderr.isatty():
        with _bar(what) as tell:
            yield tell
        return
    from cdc.app.recovery import ProgressLog  # noqa: PLC0415 - only what is used

    yield ProgressLog()


@contextmanager
def _bar(what: str) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console  # noqa: PLC0415 - only what is used
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows, {task.fields[rate]:,.0f}/s, {task.fields[megabytes]:.1f} MB"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, rate=0.0, megabytes=0.0)

        def tell(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.total,
                completed=progress.rows,
                rate=progress.rate(),
                megabytes=progress.size_bytes / 1e6,
            )

        yield tell
