"""The Go client: its own tests, its examples against real services, and what checks its code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, System
from tests.integration.clients.conftest import first_program, large_value

CLIENT = ROOT / "clients" / "go"
pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here")


def go(*arguments: str, folder: Path = CLIENT, **environment: str) -> str:
    """Run the Go command in a folder of the client, and give what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
    ended = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"go {' '.join(arguments)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_client_and_its_examples_with_real_services(system: System, tmp_path: Path):
    services = {
        "LEMAN_ENDPOINT": str(system.service["executor"]),
        "LEMAN_TOKEN": str(system.service["token"]),
        "LEMAN_DATABASE": str(tmp_path / "a lake, né 1"),
        "LEMAN_LAKE": str(system.database),
        "LEMAN_LARGE": large_value(tmp_path / "a lake, né 1"),
    }

    told = go("test", "-count=1", "-v", "./...", **services)

    assert "--- SKIP" not in told
    for example in ("Example", "ExampleTable_Append", "ExampleJob_Watch", "ExampleError", "ExampleDatabase_CreateView"):
        assert f"--- PASS: {example} " in told


@pytest.mark.lint
@pytest.mark.timeout(600)
def test_the_code_is_vetted_and_formatted():
    go("vet", "./...")
    go("mod", "verify")
    go("mod", "tidy", "-diff")
    written = [str(path) for path in CLIENT.rglob("*.go")]
    unformatted = subprocess.run(["gofmt", "-l", *written], capture_output=True, text=True, check=True)
    assert unformatted.stdout == ""


def test_the_programs_of_the_first_page_compile_and_the_first_prints_what_it_says(beside_lake: Path):
    page = CLIENT / "README.md"
    programs = re.findall(r"```go\n(package main\n.*?)```", page.read_text(), re.DOTALL)
    overlay, built = {}, beside_lake / "built"
    for number, program in enumerate(programs):
        written = beside_lake / f"{number}.go"
        written.write_text(program)
        overlay[str(CLIENT / "readme" / str(number) / "main.go")] = str(written)
    (beside_lake / "overlay.json").write_text(json.dumps({"Replace": overlay}))
    built.mkdir()

    go("build", "-overlay", str(beside_lake / "overlay.json"), "-o", str(built), "./readme/0", "./readme/1")
    told = subprocess.run([built / "0"], cwd=beside_lake, capture_output=True, text=True, check=False)

    assert len(programs) == 2
    assert (told.stdout, told.stderr) == (first_program(page, "go")[1], "")


@pytest.mark.lint
@pytest.mark.timeout(600)
def test_staticcheck_finds_nothing(tmp_path: Path):
    go("build", "-o", str(tmp_path), "honnef.co/go/tools/cmd/staticcheck", folder=CLIENT / "tools")

    found = subprocess.run(
        [str(tmp_path / "staticcheck"), "./..."], cwd=CLIENT, capture_output=True, text=True, check=False
    )

    assert found.returncode == 0, found.stdout + found.stderr
