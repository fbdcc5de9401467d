"""The wrapper that ties a process to its parent, on every platform's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from leman_local import child

CHILD = str(Path(child.__file__).resolve())
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"
DEADLINE = 30


def start(*command: str, parent: int | None = None, **more) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, CHILD, str(parent or os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


def sleeper(tmp_path) -> dict[str, object]:
    (tmp_path / "sleeper.py").write_text(SLEEP)
    return {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}}


def test_a_module_ends_with_its_standard_input(tmp_path):
    with start("run", "sleeper", **sleeper(tmp_path)) as process:
        assert process.stdout.readline() == "up\n"
        process.stdin.close()
        assert process.wait(DEADLINE) == -signal.SIGTERM


def test_a_module_gets_its_arguments_and_its_exit_code_counts(tmp_path):
    (tmp_path / "echo.py").write_text("import sys; print(__name__, *sys.argv[1:]); sys.exit(7)")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with start("run", "echo", "a", "b c", env=environment) as process:
        assert process.stdout.read() == "__main__ a b c\n"
        assert process.wait(DEADLINE) == 7


def test_a_watched_program_ends_with_standard_input_or_when_asked():
    for end in (lambda p: p.stdin.close(), lambda p: p.terminate()):
        with start("watch", sys.executable, "-c", SLEEP) as process:
            assert process.stdout.readline() == "up\n"
            (program,) = psutil.Process(process.pid).children()
            end(process)
            process.wait(DEADLINE)
            assert not program.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_the_kernel_kills_an_executed_program_with_its_parent():
    """The parent here is a process between us and the program; it holds the pipe as well."""
    between = (
        "import subprocess, sys, os\n"
        f"p = subprocess.Popen([sys.executable, {CHILD!r}, str(os.getpid()), 'exec', sys.executable, '-c', {SLEEP!r}],"
        " stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\n"
        "p.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", between], stdout=subprocess.PIPE, text=True) as parent:
        program = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        parent.wait(DEADLINE)
        _, left = psutil.wait_procs([program], DEADLINE)
        assert left == []


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_child_whose_parent_is_gone_already_never_starts():
    with start("exec", sys.executable, "-c", SLEEP, parent=1 if os.getpid() != 1 else 2) as process:
        assert process.stdout.read() == ""
        assert process.wait(DEADLINE) == 1
