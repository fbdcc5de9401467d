"""The commands of the services take no arguments, and say so instead of starting one."""

from __future__ import annotations

import pytest

from leman._local import running_systems
from leman_core.process.release import MODULES, parse_no_args


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["serve"], 2), (["--port", "7"], 2)])
def test_help_and_nonsense_start_nothing(arguments, code, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["planner", *arguments])
    with pytest.raises(SystemExit) as ended:
        parse_no_args("commit_coordinator")
    assert ended.value.code == code
    assert "python -m leman_coordinator" in "".join(capsys.readouterr())


def test_without_arguments_it_goes_on(monkeypatch):
    monkeypatch.setattr("sys.argv", ["planner"])
    parse_no_args("planner")


def test_the_sdk_starts_each_service_by_the_module_that_runs_it():
    assert running_systems.MODULES == MODULES
