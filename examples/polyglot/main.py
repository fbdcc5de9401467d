"""`./leman demo polyglot`: builds the four programs of this folder, runs them together, and shows what each one did."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import leman
from examples.demo.output import grid, heading, say
from examples.polyglot import build

READER = Path(__file__).parent / "read.py"
NAMES = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(prog="leman demo polyglot", description="One table, four languages.")
    parser.add_argument("--path", type=Path, default=Path("leman-polyglot"), help="the database (./%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="begin with no table")
    options = parser.parse_args(arguments)
    missing = build.missing()
    for line in missing:
        print(f"leman demo polyglot: {line}", file=sys.stderr)
    if missing:
        return 1
    try:
        with _interrupts():
            run(options.path, fresh=options.fresh)
    except (leman.LemanError, build.BuildError, ProgramError) as error:
        print(f"leman demo polyglot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("leman demo polyglot: interrupted; the same command continues from here", file=sys.stderr)
        return 130
    return 0


class ProgramError(Exception):
    """One of the programs failed; it has said why."""


def run(path: Path, *, fresh: bool) -> None:
    """Build, start the services, run the programs, and show what they said at last."""
    programs = build.everything()
    with leman.connect(path) as db:
        if fresh and "files" in db.table_names():
            db.drop_table("files")
        db.start()
        endpoint, token = services(path)
        say("Services  ready")
        place, environment = (endpoint, db.uri), {**os.environ, "LEMAN_TOKEN": token}
        did = {}
        with _Program("Java", programs["Java"], environment) as java:
            address = java.until("grpc://").split()[-1]
            for name, more in (("Go", (sysconfig.get_path("stdlib"),)), ("TypeScript", (address,))):
                with _Program(name, [*programs[name], *place, *more], environment) as program:
                    did[name] = program.finish()
            did["Java"] = java.stop()
        with _Program("Python", [sys.executable, str(READER), *place], environment) as program:
            did["Python"] = program.finish()
    say(f"Services  go on for a while, for anyone who comes next; leman down {path} ends them")
    heading("What each language did")
    grid(("language", "did"), [(name, did[name]) for name in ("Go", "Java", "TypeScript", "Python")])


def services(path: Path) -> tuple[str, str]:
    """The address and the token of the services of a database, for the other programs."""
    said = json.loads((path / "_leman" / "service.json").read_text())
    return said["executor"], said["token"]


class _Program:
    """A process whose lines are shown under the name of its language; it is ended with the `with` block."""

    def __init__(self, language: str, command: Sequence[str], environment: dict[str, str]) -> None:
        self._language = language
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )
        self._last = ""

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def until(self, text: str) -> str:
        """Show lines up to the first one with a text."""
        return next((line for line in self._lines() if text in line), None) or self._failed()

    def finish(self) -> str:
        """Show all lines, and give the last one."""
        for _ in self._lines():
            pass
        return self._last if self._process.wait() == 0 else self._failed()

    def stop(self) -> str:
        """Ask the program to end; show the lines that it says then, and give the last one."""
        self._process.terminate()
        for _ in self._lines():
            pass
        return self._last

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = line.rstrip()
            say(f"{self._language:{NAMES}} {self._last}")
            yield self._last

    def _failed(self) -> str:
        raise ProgramError(f"the program in {self._language} ended with {self._process.wait()}")


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Let what asks this process to end interrupt it, so that it ends its programs."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
