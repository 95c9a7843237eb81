"""The operating system account that servers run under.

Postgres refuses to run as root, and containers and CI like to be root. Then its
programs run as ``postgres``, which Debian's package makes, or else as ``nobody``.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import RequirementMissing

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom to run as; without numbers, as whoever we are."""

    uid: int | None = None
    gid: int | None = None

    def owns(self, path: Path) -> Path:
        """Make the account the owner of a file or folder, and return it."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)
        return path


OURSELVES = Account()


def unprivileged() -> Account:
    """Return an account that Postgres agrees to run under."""
    if os.geteuid() != 0:
        return OURSELVES
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise RequirementMissing(
        "Postgres does not run as root, and there is no account to run it under",
        hint="run as an ordinary user, or make one: useradd --system postgres",
    )
