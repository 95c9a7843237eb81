"""The command line of the benchmarks measures what was asked for, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import RESULTS, options_of


def test_without_arguments_everything_but_the_peers_is_measured() -> None:
    options = options_of([])

    assert options.only == ("catch-up", "latency", "cost", "growth")
    assert (options.runs, options.events) == (5, 500_000)
    assert options.folder.parent == RESULTS


def test_what_is_named_is_measured_in_that_order() -> None:
    arguments = ["--only", "cost,catch-up", "--runs", "7", "--events", "1_000,000"]

    options = options_of(arguments)

    assert options.only == ("cost", "catch-up")
    assert (options.runs, options.events) == (7, 1_000_000)


def test_quick_is_small_whatever_else_is_said() -> None:
    options = options_of(["--quick", "--runs", "9", "--events", "999999"])

    assert (options.runs, options.events, options.seconds) == (1, 20_000, 5)


def test_a_folder_is_where_the_user_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parent
    monkeypatch.chdir(here)

    assert options_of(["--folder", "out"]).folder == here / "out"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "speed"], "no scenario speed; there are catch-up,"),
        (["--runs", "0"], "0 is not positive"),
        (["--events", "many"], "invalid"),
    ],
)
def test_nonsense_is_refused_with_what_would_do(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        options_of(arguments)

    assert refused.value.code == 2
    assert words in capsys.readouterr().err
