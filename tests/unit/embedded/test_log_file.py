"""Log files of an embedded system stay small, and what a process prints in its last moment is in them."""

from __future__ import annotations

import asyncio
import os
import sys

from leman_local import service_process
from leman_local.service_process import LogFile, Spec


def test_a_log_is_set_aside_at_its_size_and_the_oldest_goes(tmp_path):
    path = tmp_path / "executor.log"
    log = LogFile(path, 1000, 2)
    for number in range(100):
        log.write(f"line {number:03} {'x' * 90}\n")
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["executor.log", "executor.log.1", "executor.log.2"]
    assert all(p.stat().st_size <= 1000 and p.stat().st_mode & 0o077 == 0 for p in tmp_path.iterdir())
    kept = "".join((tmp_path / f"executor.log{end}").read_text() for end in (".2", ".1", ""))
    assert [int(line.split()[1]) for line in kept.splitlines()] == list(range(100 - len(kept.splitlines()), 100))


def test_what_was_there_is_gone_on_with(tmp_path):
    path = tmp_path / "executor.log"
    for text in ("first\n", "caf\udce9\n"):
        log = LogFile(path, 1000, 2)
        log.write(text)
        log.close()
    assert path.read_text() == "first\ncaf\\udce9\n"


PRINTS = """
import os, sys
for number in range(2000):
    print(f"out {number:06}" + "." * 20, flush=True)
    os.write(2, f"err {number:06}{'.' * 20}\\n".encode())
os.write(2, b"the last words")
os._exit(3)
"""


def test_both_streams_of_a_process_go_to_its_log_in_whole_lines(tmp_path):
    """Half a megabyte of them is set aside a few times, and no line is lost, not even one without an end."""
    told = []

    async def run() -> None:
        command = service_process.program_command(sys.executable, "-I", "-S", "-c", PRINTS)
        spec = Spec(
            name="service",
            command=command,
            environment=dict(os.environ),
            log=tmp_path / "service.log",
            log_bytes=20_000,
            logs_kept=100,
        )
        running = await service_process.start_process(spec, told.append)
        assert await running.wait() == "ended with code 3"
        await running.clean_up()

    asyncio.run(run())
    files = list(tmp_path.iterdir())
    assert len(files) > 1  # how many depends on how much is read at once
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(
        [*(f"{name} {number:06}{'.' * 20}" for name in ("out", "err") for number in range(2000)), "the last words"]
    )
