"""`leman down`, `status` and `logs` where the services that are meant do not run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leman._local import running_systems
from leman._local.running_systems import System
from leman.cli import _service_commands, main
from leman.errors import MissingDependency

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """What runs a command of a user of whom nothing runs, and gives its exit code and what it printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["leman", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def other(python: str = sys.executable, *databases: str) -> System:
    """One that databases share which were opened in a shell with other settings."""
    home = running_systems.state_folder() / "systems" / "other"
    home.mkdir(parents=True)
    if databases:
        (home / "databases.json").write_text('{"databases": ["' + '", "'.join(databases) + '"]}')
    return System(home, {"pid": 1, "python": python})


@pytest.mark.parametrize(
    ("python", "databases", "words"),
    [
        (sys.executable, ("/data/lake",), "1 of this Python environment run with others (JAVA_HOME"),
        (sys.executable, ("/data/lake",), "`leman down /data/lake` ends them"),
        (sys.executable, (), "`leman down --all` ends them"),
        ("/another/bin/python", ("/data/lake",), "no services run from this Python environment; `leman ps` lists all"),
    ],
)
def test_services_of_a_shell_with_other_settings_are_told_of(run, monkeypatch, python, databases, words):
    system = other(python, *databases)
    monkeypatch.setattr(running_systems, "list_systems", lambda: [system])
    code, _, said = run("down")
    assert (code, words in said) == (0, True), said
    code, _, said = run("status")
    assert (code, words in said) == (1, True), said


def test_logs_without_services_here_say_where_those_of_an_installation_are(run):
    for asked, words in (
        (("logs", "job-1"), "or of Spark's workers: look for [job-1] there"),
        (("logs",), "[job-…] there"),
    ):
        code, shown, said = run(*asked)
        assert (code, shown) == (1, "")
        assert "`leman ps` lists the services that run" in said
        assert words in " ".join(said.split())
        assert "NO_LOGS" in said


def test_logs_of_what_there_is_not_are_not_those_of_something_else(run, tmp_path):
    logs = running_systems.shared_home() / "logs"
    logs.mkdir(parents=True)
    (logs / "executor.log").write_text("[job-1] counting\na line of the executor\n")
    assert run("logs") == (0, "[job-1] counting\na line of the executor\n", "")
    code, shown, said = run("logs", str(tmp_path / "nojob"))
    assert (code, shown) == (1, "")
    assert "no database at" in said
    (tmp_path / "lake" / "_leman").mkdir(parents=True)
    assert run("logs", str(tmp_path / "lake"))[0] == 0, "its services are the shared ones"
    code, shown, said = run("logs", str(tmp_path / "lake"), "job-1")
    assert (code, shown, said) == (0, "counting\n", "")
    code, shown, said = run("logs", str(tmp_path / "lake"), "job-2")
    assert (code, shown) == (0, "")
    assert "no output of functions of job-2 is kept here" in said


def test_up_takes_any_python_that_has_the_services(tmp_path):
    assert _service_commands._interpreter(sys.executable) == sys.executable
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without.chmod(0o755)
    with pytest.raises(MissingDependency, match="cannot run the services"):
        _service_commands._interpreter(str(without))
