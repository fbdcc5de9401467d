"""What a process may use of the system."""

from __future__ import annotations

import subprocess
import sys


def limit_after(before: str) -> str:
    script = "import resource; from leman_core.process import environment; "
    script += "environment.raise_open_files_limit(); print(resource.getrlimit(7)[0])"
    command = f"{before}; exec {sys.executable} -c '{script}'"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_lets():
    assert limit_after("ulimit -Sn 200; ulimit -Hn 4096") == "4096"
    assert limit_after("ulimit -n 4096") == "4096"
