"""What `./leman setup` says while installers work."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader

import pytest

from tests.conftest import ROOT


@pytest.fixture
def launcher():
    loader = SourceFileLoader("leman_launcher_of_set_up", str(ROOT / "leman"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_an_installer_that_takes_long_is_said_to_be_at_work(launcher, tmp_path, monkeypatch):
    """It waits for a word, which it gets once someone knows that it is still at work."""
    word, said = tmp_path / "word", []
    os.mkfifo(word)

    def say(text):
        said.append(text)
        if "still" in text and not any("still" in before for before in said[:-1]):
            word.write_text("go on")

    monkeypatch.setattr(launcher, "say", say)
    monkeypatch.setattr(launcher, "STILL_SECONDS", 0.05)
    launcher.step("installing things", [sys.executable, "-c", f"open({str(word)!r}).read()"])
    assert said[0] == "  installing things"
    assert said[1].startswith("  … still installing things, for ")


def test_an_installer_that_fails_is_quoted(launcher, monkeypatch):
    monkeypatch.setattr(launcher, "say", lambda _: None)
    with pytest.raises(launcher.SetupError, match=r"installing things failed \(exit code 3\):\n  no such thing"):
        launcher.step("installing things", [sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"])
