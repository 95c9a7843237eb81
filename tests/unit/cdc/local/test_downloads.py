from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from cdc.local.downloads import cache_folder, kept


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WALFERRY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_kept_is_made_once(cache: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "jar").write_text("whole")

    first, second = kept("thing-1", make), kept("thing-1", make)

    assert first == second == cache / "thing-1"
    assert (first / "jar").read_text() == "whole"
    assert len(made) == 1


def test_a_half_finished_download_is_not_taken_for_whole(cache: Path) -> None:
    def break_off(folder: Path) -> None:
        (folder / "jar").write_text("ha")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        kept("thing-1", break_off)
    assert not list(cache.glob("thing-1*/*"))

    def make(folder: Path) -> None:
        (folder / "jar").write_text("whole")

    assert (kept("thing-1", make) / "jar").read_text() == "whole"


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    left = cache / "thing-1.part-abc"
    left.mkdir(parents=True)
    (left / "jar").write_text("ha")

    kept("thing-1", lambda folder: (folder / "jar").touch())

    assert not left.exists()


def _fetch(log: str) -> None:
    def make(folder: Path) -> None:
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.2)  # the download; the others arrive meanwhile
        (folder / "jar").touch()

    kept("thing-1", make)


def test_processes_that_want_the_same_thing_make_it_once(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fetch, args=(log,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(Path(log).read_text().splitlines()) == 1


def test_the_cache_is_outside_the_checkout_without_a_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WALFERRY_CACHE")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))

    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/walferry")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "walferry"


def test_roots_cache_can_be_entered_by_the_account_of_its_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WALFERRY_CACHE")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cache_folder() == Path("/var/cache/walferry")
