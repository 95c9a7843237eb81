"""The command line itself: help, versions, mistakes of usage."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from slots.cli import command, showing
from slots.cli.command import run

COMMANDS = (
    "list",
    "show",
    "why",
    "check",
    "watch",
    "create",
    "drop",
    "advance",
    "copy",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0

    out = capsys.readouterr().out
    assert f"Example: slots {name}" in out
    assert "--dsn" in out


def test_without_arguments_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert all(name in capsys.readouterr().out or name for name in COMMANDS)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"walferry {version('walferry')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["list", "--nosuch"],
        ["show"],
        ["list", "--limit", "lag"],
        ["list", "--limit", "lag=much"],
        ["list", "--sample", "soon"],
        ["watch", "--interval", "0"],
        ["create", "x", "--timeout", "soon", "--yes"],
    ],
)
def test_a_mistake_of_usage_is_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("slots: ")
    assert "--help" in last


def test_a_probes_mistake_of_usage_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["check", "--nosuch"]) == 3

    out, err = capsys.readouterr()
    assert out.startswith("SLOTS UNKNOWN - ")
    assert out.count("\n") == 1
    assert err == ""


def test_a_misspelt_variable_is_named_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLOTS_LAGG", "1GB")

    assert run(["list"]) == 2
    assert "there is no variable SLOTS_LAGG: did you mean SLOTS_LAG?" in (
        capsys.readouterr().err
    )


def test_what_kubernetes_injects_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SLOTS_SERVICE_HOST", "SLOTS_PORT", "SLOTS_PORT_80_TCP_ADDR"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLOTS_WEB_SERVICE_PORT_HTTP", "80")

    assert run(["list", "--dsn", "postgresql://u@127.0.0.1:1/d"]) == 1
    assert "Connection refused" in capsys.readouterr().err


def break_down(*_: object, **__: object) -> None:
    raise RuntimeError("s3cr3t detail")


def test_a_bug_is_one_line_and_a_traceback_with_debug_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing, "read_limits", break_down)

    assert run(["list"]) == 1
    err = capsys.readouterr().err
    assert err == "slots: a bug: RuntimeError; `slots --debug ...` shows where\n"
    with pytest.raises(RuntimeError):
        run(["--debug", "list"])


def test_a_probes_bug_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slots.cli.probing.read_limits", break_down)

    assert run(["check"]) == 3
    assert capsys.readouterr().out.startswith("SLOTS UNKNOWN - a bug: RuntimeError")


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["slots", "--version"])

    with pytest.raises(SystemExit) as caught:
        command.main()

    assert caught.value.code == 0
