"""What a process shows of its settings, and hands on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LOOK = """
import os, subprocess, sys
from pathlib import Path
from leman_core.process.process_secrets import forget_settings
from leman_core import settings as config
before = Path("/proc/self/environ").read_bytes()
assert b"s3cret" in before
settings = config.load()
forget_settings()
assert settings.server.token.get_secret_value() == "s3cret"
shown = Path("/proc/self/environ").read_bytes()
handed_on = subprocess.check_output([sys.executable, "-c", "import os; print(dict(os.environ))"])
print("s3cret" in str(os.environ), b"s3cret" in shown, b"s3cret" in handed_on)
print(b"LC_KEPT=yes" in shown, os.environ["LC_KEPT"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_that_has_read_its_settings_shows_and_hands_on_none():
    environment = {
        **os.environ,
        "LEMAN_SERVER__TOKEN": "s3cret",
        "LEMAN_REDIS__URL": "redis://:s3cret@h/0",
        "LC_KEPT": "yes",
    }
    said = subprocess.check_output([sys.executable, "-c", _LOOK], env=environment, text=True, cwd=Path.cwd())
    assert said.split() == ["False", "False", "False", "True", "yes"]
