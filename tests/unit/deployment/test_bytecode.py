"""Processes that tests start find bytecode where Python is set to write none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import bytecode
from tests.conftest import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "FOLDER", tmp_path / "bytecode")
    monkeypatch.setattr(bytecode, "_MODULES", ("no_module_at_all", "colorsys"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    return tmp_path / "bytecode"


def test_what_is_compiled_is_found_and_nothing_else_is_written(folder, tmp_path):
    bytecode.use(renew=False)
    assert "PYTHONPYCACHEPREFIX" not in os.environ, "there is none yet"
    bytecode.use(renew=True)
    compiled = sorted(path.name for path in folder.rglob("*.pyc"))
    assert any(name.startswith("colorsys.") for name in compiled)
    (tmp_path / "mine.py").write_text("import colorsys; print(colorsys.__cached__)")
    found = subprocess.run(
        [sys.executable, "-c", "import mine"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(folder))
    assert sorted(path.name for path in folder.rglob("*.pyc")) == compiled
    assert not list(tmp_path.glob("__pycache__"))


def test_whoever_has_bytecode_written_or_says_where_is_left_alone(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "elsewhere")
    bytecode.use(renew=True)
    assert os.environ["PYTHONPYCACHEPREFIX"] == "elsewhere"
    monkeypatch.delenv("PYTHONPYCACHEPREFIX")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    bytecode.use(renew=True)
    assert "PYTHONPYCACHEPREFIX" not in os.environ
    assert not folder.exists()


def test_a_module_that_is_imported_while_tests_are_collected_is_kept_and_a_later_one_is_not(folder, tmp_path):
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text("value = 1")
    program = (
        "import sys; from pathlib import Path; from tests import bytecode; bytecode.FOLDER = Path(sys.argv[1])\n"
        "bytecode.write_while_collecting(); import first; bytecode.stop_writing(); import second"
    )
    paths = os.pathsep.join((str(ROOT), str(tmp_path)))
    subprocess.run([sys.executable, "-c", program, str(folder)], env=os.environ | {"PYTHONPATH": paths}, check=True)
    written = {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}
    assert "first" in written
    assert "second" not in written
