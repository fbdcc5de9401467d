"""The programs of the clients: what they get, and what they print."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from tests.conformance.clients.languages import Language

#: So long a program may say nothing: a round, with all the restarts that fall into it.
SILENCE_SECONDS = 240.0
#: In so long a program at rest has as few connections and threads as it ever has: those that ended are gone.
_SETTLE_SECONDS = 30.0
_LOOK_SECONDS = 1.0
#: In so long its process ends by itself, once it has closed its clients.
_END_SECONDS = 30.0


class Program:
    """A program that works with services by one client. It is killed where it is not asked to `end`."""

    def __init__(self, language: Language, command: list[str], told: dict[str, Any], folder: Path) -> None:
        self.name = language.name
        self.rounds: list[dict[str, Any]] = []
        file = folder / f"{language.name}.json"
        file.write_text(json.dumps(told))
        self._errors = folder / f"{language.name}.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, str(file)],
                cwd=language.folder,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()

    def work(self) -> None:
        """Have it begin with its rounds."""
        self._tell("work")

    def wait_for_rounds(self, count: int) -> None:
        """Wait until it has done so many."""
        while len(self.rounds) < count:
            self._hear()

    def rest(self, most: dict[str, int] | None = None) -> dict[str, int]:
        """Have it end its round and rest, and give what it holds once that stays as it is, or is no more than `most`,
        or after a while."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        before: dict[str, int] = {}
        while True:
            self._tell("rest")
            holds = self._hear_of("resting") | {"handles": psutil.Process(self._process.pid).num_fds()}
            settled = holds == before if most is None else all(holds[what] <= count for what, count in most.items())
            if settled or time.monotonic() > deadline:
                return holds
            before = holds
            threading.Event().wait(_LOOK_SECONDS)

    def memory_mb(self) -> int:
        """Its resident memory."""
        return round(psutil.Process(self._process.pid).memory_info().rss / 1e6)

    def end(self) -> dict[str, int]:
        """Have it close its clients and end, and give what was left then."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        left = self._hear_of("closed")
        assert self._process.wait(_END_SECONDS) == 0, self._failed("it ended badly")
        return left

    def kill(self) -> None:
        """End it, even in the middle of its work."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def hear_all(self) -> None:
        """Take what it has said so far."""
        while not self._lines.empty():
            self._hear()

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n".encode())
        except BrokenPipeError:  # it ended, and has said why
            while True:
                self._hear()

    def _hear_of(self, what: str) -> dict[str, int]:
        while what not in (told := self._hear()):
            pass
        found: dict[str, int] = told[what]
        return found

    def _hear(self) -> dict[str, Any]:
        """The next line; one about a round is kept."""
        try:
            line = self._lines.get(timeout=SILENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(self._failed(f"silent for {SILENCE_SECONDS:.0f} s")) from None
        assert line, self._failed("it ended")
        told: dict[str, Any] = json.loads(line)
        assert "failed" not in told, self._failed(told.get("failed", ""))
        if "round" in told:
            self.rounds.append(told["round"])
        return told

    def _failed(self, why: str) -> str:
        return f"{self.name}, after {len(self.rounds)} rounds: {why}\n{self._errors.read_text()[-4000:]}"


def _read(pipe: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(b"")
