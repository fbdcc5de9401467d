"""What is printed while services start."""

from __future__ import annotations

import io
import sys

import pytest

from leman._local.embedded_services import StartLine, parts_up

LOG = b"""old {"process": "redis", "event": "up"}
{"process": "redis", "pid": 1, "event": "up", "level": "info"}
{"process": "planner", "pid": 2, "event": "started"}
no json "event": "up"
{"process": "planner", "pid": 2, "event": "up"}
{"process": "exec"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log").write_bytes(LOG)
    return tmp_path / "log"


def test_what_is_up_is_what_the_log_says_since_the_start(log, tmp_path):
    assert parts_up(log, LOG.index(b"\n")) == {"redis", "planner"}
    assert parts_up(tmp_path / "none", 0) == set()


def test_a_terminal_has_one_line_which_goes(log, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with StartLine(log, LOG.index(b"\n")) as line:
        line.look()
        line.look()
    shown = terminal.getvalue()
    assert "starting services   0 s  ✓ redis  ✓ planner  · commit coordinator  · executor" in shown
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[2K")


def test_others_have_none(log, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with StartLine(log, 0) as line:
        line.look()
    assert stream.getvalue() == ""
