"""The runners: which there are, what they need, and a run of one."""

from __future__ import annotations

import json
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.conftest import ROOT

#: No case takes this long; a runner that reports nothing about one for this time hangs.
_SILENCE_SECONDS = 240.0
#: No language takes so long with all its cases, however busy the machine: what is not done by then fails.
_RUN_SECONDS = 1200.0
#: How long a runner that hangs may take to write where it hangs.
_STACK_SECONDS = 3.0
_TAIL = 12_000


@dataclass(frozen=True)
class Language:
    """A client, and how its runner is started."""

    name: str
    folder: Path
    needs: tuple[str, ...]
    prepare: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]

    def missing(self) -> list[str]:
        """Programs of its toolchain that this machine does not have."""
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass(frozen=True)
class Outcome:
    """How a case ended: `passed`, `failed`, `skipped`."""

    outcome: str
    detail: str


def find(program: str = "") -> list[Language]:
    """All of them, by name. `program`: another one than the runner, which has its own entry in runner.json."""
    found = []
    for path in sorted((ROOT / "clients").glob("*/conformance/runner.json")):
        told = json.loads(path.read_text())
        started = told[program] if program else told
        prepare = tuple(tuple(command) for command in started.get("prepare", ()))
        folder = path.parent.parent
        found.append(Language(folder.name, folder, tuple(told["needs"]), prepare, tuple(started["run"])))
    return found


def prepare(language: Language, folder: Path) -> list[str]:
    """Build what a language needs, and give the command that starts it, without its last argument."""
    out = folder / f"{language.name}-built"
    out.mkdir(exist_ok=True)
    known = {"out": str(out), "root": str(ROOT), "python": sys.executable}
    for command in language.prepare:
        _prepare([part.format(**known) for part in command], language)
    return [part.format(**known) for part in language.run]


def run(language: Language, control: str, cases: Iterable[str], folder: Path) -> dict[str, Outcome]:
    """Have a runner do cases; one at which it hangs or ends failed, and another runner does those after it."""
    begin = prepare(language, folder)
    left = list(cases)
    outcomes: dict[str, Outcome] = {}
    deadline = time.monotonic() + _RUN_SECONDS
    while left and time.monotonic() < deadline:
        file = folder / f"{language.name}.json"
        file.write_text(json.dumps({"control": control, "cases": left}))
        told, errors = _told_by([*begin, str(file)], language, deadline)
        outcomes |= told
        left = [name for name in left if name not in outcomes]
        if left:
            outcomes[left.pop(0)] = Outcome("failed", f"the runner said nothing of it: {errors}")
    late = Outcome("failed", f"the cases before it took {_RUN_SECONDS:.0f} s")
    return outcomes | dict.fromkeys(left, late)


def _told_by(command: list[str], language: Language, deadline: float) -> tuple[dict[str, Outcome], str]:
    """What a runner said until it ended, or was ended as it hung; and why it did, with the end of its errors."""
    outcomes: dict[str, Outcome] = {}
    strays: list[str] = []
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=language.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdout is not None
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process.stdout, lines))
        reader.start()
        hung = False
        try:
            while line := lines.get(timeout=min(_SILENCE_SECONDS, max(0.0, deadline - time.monotonic()))):
                try:
                    told = json.loads(line)
                    outcomes[told["case"]] = Outcome(told["outcome"], told.get("detail", ""))
                except (
                    ValueError,
                    TypeError,
                    KeyError,
                ):  # whatever wrote this, it is for anyone who reads of a failure
                    strays.append(line.decode(errors="replace"))
        except queue.Empty:
            hung = True
            process.send_signal(signal.SIGQUIT)  # Go, the JVM and the Python runner tell where their threads are
            threading.Event().wait(_STACK_SECONDS)
            process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        errors.seek(0)
        tail = errors.read().decode(errors="replace")[-_TAIL:]
    why = f"silent for {_SILENCE_SECONDS:.0f} s, or out of time" if hung else f"it ended with {process.returncode}"
    return outcomes, f"{why}\n{tail}{''.join(strays)[-_TAIL:]}"


def _read(pipe: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(b"")


def _prepare(command: list[str], language: Language) -> None:
    ended = subprocess.run(command, cwd=language.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout.decode()}{ended.stderr.decode()}"
