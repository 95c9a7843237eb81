"""Results are kept as they come in, and nothing that was measured is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from bench.machine import machine
from bench.picture import Line, Panel
from bench.report import Report
from bench.table import Table

if TYPE_CHECKING:
    from pathlib import Path


def stored(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads((folder / "report.json").read_bytes())
    return document


def test_a_reading_is_in_the_file_as_soon_as_it_is_kept(tmp_path: Path) -> None:
    report = Report(tmp_path / "new", machine())

    report.keep("races", {"rate": 5})

    assert stored(tmp_path / "new")["readings"] == {"races": [{"rate": 5}]}


def test_an_interrupted_table_is_printed_and_kept_with_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(tmp_path, machine())

    def interrupted() -> None:
        with report.table(Table(title="Rates", head=("who", "events/s"))) as table:
            table.add("walferry", "7")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert "walferry" in capsys.readouterr().out
    assert "| walferry | 7 |" in (tmp_path / "report.md").read_text()
    assert stored(tmp_path)["tables"][0]["rows"] == [["walferry", "7"]]


def test_what_could_not_be_measured_is_said_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(tmp_path, machine())
    assert not report.has_failures

    report.failed("walbox: no Python")

    assert report.has_failures
    assert "FAILED: walbox: no Python" in capsys.readouterr().out
    assert "- walbox: no Python" in (tmp_path / "report.md").read_text()
    assert stored(tmp_path)["failures"] == ["walbox: no Python"]


def test_what_cannot_be_had_here_is_said_and_no_failure(tmp_path: Path) -> None:
    report = Report(tmp_path, machine())

    report.left_out("walbox: needs Python 3.13")

    assert not report.has_failures
    assert "## Left out\n\n- walbox: needs" in (tmp_path / "report.md").read_text()
    assert stored(tmp_path)["left_out"] == ["walbox: needs Python 3.13"]


def test_the_picture_is_written_once_there_is_one(tmp_path: Path) -> None:
    report = Report(tmp_path, machine())
    report.write()
    assert not (tmp_path / "rates.svg").exists()

    report.show([Panel(title="x", lines=[Line(name="a", points=[(0, 1)])])])
    report.write()

    assert (tmp_path / "rates.svg").read_text().startswith("<svg")
    assert "(rates.svg)" in (tmp_path / "report.md").read_text()


def test_the_machine_and_every_release_stand_above_the_results(tmp_path: Path) -> None:
    report = Report(tmp_path, machine())

    report.version("Kafka", "4.4.0")
    report.write()

    text = (tmp_path / "report.md").read_text()
    assert "Kafka 4.4.0" in text
    assert f"{stored(tmp_path)['machine']['cores']} cores of " in text
    assert "python -m bench" in text


def test_no_draft_is_left_behind(tmp_path: Path) -> None:
    report = Report(tmp_path, machine())

    report.write()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.json",
        "report.md",
    ]
