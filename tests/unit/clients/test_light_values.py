"""Arguments and options of commands: most are taken without pydantic, and all as typer would take them."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer import _coercion
from typer.testing import CliRunner

from leman import cli

_COMMANDS = """
import sys
from leman.cli import main
sys.argv[1:] = sys.argv[1].split()
try:
    main()
finally:
    print(sorted({"pydantic", "pandas"} & set(sys.modules)))
"""
app = typer.Typer()


@app.command()
def command(
    text: str,
    flag: Annotated[bool, typer.Option("--flag", envvar="A_FLAG")] = False,
    number: Annotated[int, typer.Option(min=1, max=9)] = 5,
    maybe: Annotated[int | None, typer.Option()] = None,
    share: float = 0.5,
    many: Annotated[list[str] | None, typer.Option()] = None,
    numbers: Annotated[list[int] | None, typer.Option(min=1)] = None,
    parsed: Annotated[str | None, typer.Option(parser=str.upper)] = None,
) -> None:
    """Print what was taken."""
    typer.echo([text, flag, number, maybe, share, many, numbers, parsed])


_CASES = {
    "a": "['a', False, 5, None, 0.5, None, None, None]",
    "a --flag --number 9 --maybe 7": "['a', True, 9, 7, 0.5, None, None, None]",
    "a --number 09 --maybe -7": "['a', False, 9, -7, 0.5, None, None, None]",
    "a --many x --many y --numbers 1 --numbers 2": "['a', False, 5, None, 0.5, ['x', 'y'], [1, 2], None]",
    "a --parsed b --share 0.25": "['a', False, 5, None, 0.25, None, None, 'B']",
}


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize(
    ("given", "taken"),
    [
        *_CASES.items(),
        ("a --number 10", "less than or equal to 9"),
        ("a --number x", "unable to parse string"),
        ("a --maybe ١x", "unable to parse string"),
        ("a --numbers 1 --numbers 0", "greater than or equal to 1"),
        ("", "Missing argument"),
    ],
)
def test_a_value_is_taken_as_typer_takes_it(monkeypatch, given, taken, light):
    monkeypatch.setenv("A_FLAG", "false")
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    plain = _coercion.build_runtime_param
    monkeypatch.setattr(typer.core, "build_runtime_param", plain)
    if light:
        cli.use_light_values()
        assert typer.core.build_runtime_param is not plain
    done = CliRunner().invoke(app, given.split())
    assert taken in done.output
    assert done.exit_code == (0 if given in _CASES else 2)


def test_another_typer_goes_on_as_it_does(monkeypatch):
    monkeypatch.delattr(typer.core, "build_runtime_param")
    cli.use_light_values()
    assert not hasattr(typer.core, "build_runtime_param")


@pytest.mark.parametrize("command", ["tables ls .", "udfs ls .", "jobs ls . --limit 3", "errors . --limit 3", "ps"])
def test_commands_that_read_import_no_pydantic(command, tmp_path):
    run = [sys.executable, "-c", _COMMANDS, command]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
