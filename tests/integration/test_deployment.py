"""What a user installs: the wheel alone, and the files for containers.

No container engine is used: image and compose file are read by the tools that judge
them, nothing is built from them here.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HAS_HADOLINT = sys.platform == "linux" and platform.machine() == "x86_64"
INSTALL_TIMEOUT_S = 240


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Whoever runs the tests may have settings of their own.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CDC_", "PYTHON"))
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )


def checked(*command: str | Path, cwd: Path = ROOT) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    checked(
        *(sys.executable, "-m", "pip", "wheel", "--quiet"),
        *("--disable-pip-version-check", "--no-deps", "--wheel-dir", folder, ROOT),
    )
    (built,) = folder.glob("walferry-*.whl")
    return built


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    """Type marker, SQL and licence are in; tests, benchmarks and caches are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {
        str(file.relative_to(ROOT))
        for package in ("cdc", "slots")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == ours
    assert {"cdc/py.typed", "slots/py.typed"} <= packed
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_and_what_it_declares_are_enough_to_carry_rows(
    wheel: Path, tmp_path: Path
) -> None:
    """Installed into a new environment, with no checkout near, the demo runs."""
    checked(sys.executable, "-m", "venv", tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    checked(
        *(programs / "python", "-m", "pip", "install", "--quiet"),
        *("--disable-pip-version-check", "-c", ROOT / "constraints.txt"),
        f"{wheel}[demo]",
    )

    version = wheel.name.split("-")[1]
    assert checked(programs / "cdc", "--version", cwd=tmp_path) == (
        f"walferry {version}\n"
    )
    assert "watch" in checked(programs / "slots", "--help", cwd=tmp_path)
    closing = checked(programs / "cdc", "demo", "--sink", "jsonl", cwd=tmp_path)
    last = closing.splitlines()[-1]
    assert re.match(r"demo: \d+ events committed, .*, 0 missing, 0 duplicated", last)


def test_the_compose_file_is_valid() -> None:
    if shutil.which("docker-compose"):
        compose = ["docker-compose"]
    elif shutil.which("docker") and run("docker", "compose", "version").stdout:
        compose = ["docker", "compose"]
    else:
        pytest.fail(
            "docker-compose is missing: apt-get install --no-install-recommends"
            " docker-compose",
            pytrace=False,
        )

    resolved = checked(*compose, "config")

    for service in ("postgres", "kafka", "init", "relay"):
        assert re.search(rf"^  {service}:$", resolved, re.MULTILINE)


@pytest.mark.skipif(not HAS_HADOLINT, reason="hadolint's wheel is for Linux on x86-64")
@pytest.mark.parametrize("file", ["Dockerfile", "deploy/postgres-wal2json.Dockerfile"])
def test_a_linter_has_nothing_to_say_about_an_image(file: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")

    assert checked(hadolint, ROOT / file) == ""
