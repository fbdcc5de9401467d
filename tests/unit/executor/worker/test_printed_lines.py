"""What functions print has the id of its job, line by line."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leman_executor.worker import process_environment
from leman_executor.worker.process_environment import PrintedLines


@pytest.fixture
def stream():
    """A stream, and what came out of it."""
    ours, theirs = os.pipe()
    lines, text = process_environment.open_printed_lines(theirs)
    PrintedLines.job_id = "job-1"
    yield lines, text, lambda: os.read(ours, 1 << 20).decode()
    PrintedLines.job_id = ""
    os.close(ours)
    os.close(theirs)


def test_lines_are_tagged_when_they_are_whole(stream):
    lines, text, read = stream
    print("one", end=" ", file=text)
    print("line\nand", file=text)
    assert read() == "[job-1] one line\n[job-1] and\n"
    text.buffer.write(b"bytes\nand a rest")
    assert read() == "[job-1] bytes\n"
    lines.end_line()
    assert read() == "[job-1] and a rest\n"
    PrintedLines.job_id = "job-2"
    print("x", file=text)
    assert read() == "[job-2] x\n"
    PrintedLines.job_id = ""
    print("no job", file=text)
    assert read() == "no job\n"


def test_a_line_that_does_not_end_is_not_kept_for_ever(stream, monkeypatch):
    _, text, read = stream
    monkeypatch.setattr(process_environment, "_LONGEST", 10)
    text.write("x" * 11)
    text.write("y\n")
    assert read() == "[job-1] " + "x" * 11 + "\n[job-1] y\n"


def test_text_that_is_no_utf8_is_escaped(stream):
    _, text, read = stream
    print("\ud800", file=text)
    assert read() == "[job-1] \\ud800\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_function_may_print_where_the_log_takes_no_more():
    full = os.open("/dev/full", os.O_WRONLY)
    lines, text = process_environment.open_printed_lines(full)
    print("there is no room for this", file=text)
    text.write("nor for a rest")
    lines.end_line()
    lines.is_log = False
    with pytest.raises(OSError, match="No space left"):
        print("the function has it lead here", file=text)
    os.close(full)


def test_output_that_another_process_made_non_blocking_is_written_whole(stream):
    """The pipe is one for all function processes, and so are its flags: ssh, node and asyncio children set them."""
    lines, text, _ = stream
    ours, theirs = os.pipe()
    os.dup2(theirs, lines.fileno())
    os.set_blocking(theirs, False)
    os.close(theirs)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(lambda: sum(len(part) for part in iter(lambda: os.read(ours, 1 << 16), b"") if part))
        text.write("x" * 1_000_000 + "\n")
        with Path(os.devnull).open("wb") as null:  # the last writer of the pipe is gone
            os.dup2(null.fileno(), lines.fileno())
        assert read.result(timeout=30) == len("[job-1] \n") + 1_000_000
    os.close(ours)
