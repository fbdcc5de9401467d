"""What programs that are killed leave of their sessions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import leman

PROGRAM = """
import signal, leman
with leman.session() as session:
    print(session._home, flush=True)
    signal.pause()
"""


def test_a_session_removes_what_killed_programs_left_and_nothing_of_others(tmp_path, monkeypatch):
    """It was left for ever."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        homes = [program.stdout.readline().strip() for program in programs]
        programs[0].send_signal(signal.SIGTERM)
        programs[0].wait(20)
        assert sorted(map(str, tmp_path.iterdir())) == sorted(homes)
        with leman.session() as session:
            assert sorted(tmp_path.iterdir()) == sorted([session._home, tmp_path / homes[1].rpartition("/")[2]])
        assert [str(path) for path in tmp_path.iterdir()] == homes[1:]
    finally:
        for program in programs:
            program.kill()
            program.wait(20)
            program.stdout.close()
