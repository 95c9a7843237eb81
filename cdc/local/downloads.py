"""The folder where downloads are kept between runs.

What stands there under its final name is whole: it is made beside it and renamed, and
two processes that want the same thing make it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Root's home is closed to the account that root's servers run under.
_ROOTS_CACHE = Path("/var/cache/walferry")


def cache_folder() -> Path:
    """Return the cache: ``$WALFERRY_CACHE``, else the usual place."""
    if chosen := os.environ.get("WALFERRY_CACHE"):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return _ROOTS_CACHE
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "walferry"
    return Path.home() / ".cache" / "walferry"


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name from the cache, made first if it is not there.

    Args:
        name: what it is, with its version.
        make: fills the empty folder it is given; when it raises, nothing is kept.

    """
    cache = cache_folder()
    whole = cache / name
    if whole.is_dir():
        return whole
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{name}.lock"):
        if whole.is_dir():
            return whole
        for abandoned in cache.glob(f"{name}.part-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{name}.part-", dir=cache))
        try:
            make(part)
            part.chmod(0o755)
            part.rename(whole)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return whole


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep other processes out until done; the kernel ends the lock with us."""
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
