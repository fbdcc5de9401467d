"""The program `leman` ends at once, and leaves nothing undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import atexit, sys, threading
import leman.cli, leman._program

class Last:
    def __del__(self):
        print("taken down")

def run():
    print("said", end=" ")
    {0}

last = Last()
atexit.register(print, "at the end")
leman.cli.main = run
leman._program.main()
"""


def ran(command):
    return subprocess.run([sys.executable, "-c", _PROGRAM.format(command)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("command", "code"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3)])
def test_what_was_said_is_told_what_is_for_the_end_is_done_and_python_is_not_taken_down(command, code):
    done = ran(command)
    assert (done.stdout, done.stderr, done.returncode) == ("said at the end\n", "", code)


def test_what_still_runs_is_waited_for():
    """A thread that would be cut off has Python end as it does by itself."""
    late = 'lambda: (threading.main_thread().join(), print("late"))'
    done = ran(f"threading.Thread(target={late}).start()")
    assert "late" in done.stdout
    assert done.stdout.endswith("at the end\ntaken down\n")


@pytest.mark.parametrize(("command", "told"), [("sys.exit('no')", "no\n"), ("1 / 0", "ZeroDivisionError")])
def test_what_python_tells_at_its_end_is_told(command, told):
    done = ran(command)
    assert (done.returncode, told in done.stderr) == (1, True)


@pytest.mark.skipif(sys.platform != "linux", reason="a device that is always full")
def test_output_that_cannot_be_written_is_a_failure():
    command = [sys.executable, "-c", _PROGRAM.format("pass")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode not in (0, None)
    assert "No space left on device" in done.stderr


def test_a_stream_that_is_closed_is_left_alone():
    done = ran("sys.stdout = None; sys.stderr.close(); sys.exit(2)")
    assert done.returncode == 2
