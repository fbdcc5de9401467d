"""The program `leman` ends at once, and leaves nothing undone."""

from __future__ import annotations

import os
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
@pytest.mark.parametrize("said", ["pass", "sys.stdout.flush()", "print('x' * 100_000)"])
def test_output_that_cannot_be_written_is_a_failure(said):
    command = [sys.executable, "-c", _PROGRAM.format(said)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    if said == "pass":
        assert done.returncode == 1
        assert done.stderr == FULL
    assert "standard output cannot be written: No space left on device" in done.stderr


FULL = (
    "leman: standard output cannot be written: No space left on device. The command has done its work; redirect its "
    "output to a place with free space [OUTPUT_FAILED]\n"
)


def shell(arguments, redirected):
    return subprocess.run(
        ["bash", "-c", f'"$0" -m leman.cli {arguments} {redirected}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="a device that is always full")
@pytest.mark.parametrize("command", ["--version", "--help", "backfill --help"])
def test_a_full_standard_output_is_told_in_a_sentence_once(command):
    done = shell(command, "> /dev/full")
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.skipif(sys.platform != "linux", reason="a device that is always full")
@pytest.mark.parametrize("option", ["", "--json"])
def test_settings_that_cannot_be_written_are_told_in_a_sentence(option):
    done = shell(f"config show {option}", "> /dev/full")
    told = "standard output cannot be written: No space left on device. Redirect it to where there is room\n"
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        (">&-", 1, "leman: standard output is closed. Redirect it to a file or to /dev/null [OUTPUT_FAILED]\n"),
        (">&- 2>&-", 1, ""),
        ("2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_closed_streams_are_told_or_ignored(redirected, code, told):
    done = shell("config show", redirected)
    assert (done.returncode, done.stderr, bool(done.stdout)) == (code, told, code == 0)


def test_a_remark_that_cannot_be_written_changes_no_exit_code():
    assert shell("tables ls", "2> /dev/full").returncode == shell("tables ls", "").returncode == 2


def test_a_reader_that_has_seen_enough_is_no_failure_of_standard_output():
    done = shell("config show", "| head -c 1 && exit ${PIPESTATUS[1]}")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_encoding_of_the_terminal_lacks_is_written_as_escapes():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format("print('\u6570 \\udcff')")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u6570 \udcff" in done.stdout


def test_a_stream_that_is_closed_is_left_alone():
    done = ran("sys.stdout = None; sys.stderr.close(); sys.exit(2)")
    assert done.returncode == 2
