"""The services' own command lines: what stops them from starting, and what they leave out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_wrong_settings_end_a_service_with_code_2():
    done = run("-m", "leman_planner", LEMAN_SERVER__PORT="http")
    assert done.returncode == 2
    assert "LEMAN_SERVER__PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_that_cannot_start_ends_with_code_1_and_says_why():
    done = run("-m", "leman_coordinator", LEMAN_SERVER__HOST="0.0.0.0")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["reason"], line["service"]) == ("INSECURE_BIND", "commit_coordinator")


@pytest.mark.parametrize("service", ["planner", "commit_coordinator"])
def test_services_without_user_code_start_without_pandas(service):
    """pyarrow would import it: most of a second before the first call."""
    done = run(
        "-c", f"import sys, {service}.__main__; print(sorted({{'pandas', 'rich', 'pyspark'}} & set(sys.modules)))"
    )
    assert done.stdout == "[]\n", done.stderr
