"""Each example runs as it is, from a shell, and prints what it says that it prints."""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
#: Larger ones.
LONG = {"coming_from", "images", "paid_api", "training_view"}


def promised(example: Path) -> str:
    """What an example says that it prints; `*` stands for anything."""
    said = ast.get_docstring(ast.parse(example.read_text())) or ""
    return textwrap.dedent(said.partition("Prints:\n")[2]).strip()


def keeps_promise(example: Path, printed: str) -> bool:
    """Whether it printed what it says."""
    return fnmatch.fnmatchcase(printed.strip(), promised(example).replace("[", "[[]"))


@pytest.fixture
def folder(system, tmp_path) -> Path:
    """A database of its own, which the services of the suite serve."""
    lake = tmp_path / "lake"
    (lake / "_leman").mkdir(parents=True)
    (lake / "_leman" / "service.json").write_text(json.dumps(system.service))
    return lake


@pytest.mark.spark
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in EXAMPLES])
def test_an_example_prints_what_it_says(folder, name):
    example = ROOT / "examples" / f"{name}.py"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")}

    run = subprocess.run(
        [sys.executable, str(example), str(folder)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert run.returncode == 0, run.stderr
    assert promised(example)
    assert keeps_promise(example, run.stdout), run.stdout


def test_the_list_of_examples_names_each_once():
    listed = re.findall(r"\]\((\w+)\.py\)", (ROOT / "examples" / "README.md").read_text())

    assert sorted(listed) == EXAMPLES
