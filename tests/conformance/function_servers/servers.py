"""The example function servers, one in each language: which there are, what they need, and a process of one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT


@dataclass(frozen=True)
class Language:
    """A language's example server: how it is built and started, in the folder of its client."""

    name: str
    needs: tuple[str, ...]
    run: tuple[str, ...]
    prepare: tuple[tuple[str, ...], ...] = ()

    def missing(self) -> list[str]:
        """Programs of its toolchain that this machine does not have."""
        return [program for program in self.needs if shutil.which(program) is None]

    def build(self, out: Path) -> tuple[str, ...]:
        """Build it, and give the command that starts it.

        Args:
            out: A folder for what is built, for languages that build nothing in place.
        """
        known = {"out": str(out), "python": sys.executable}
        for command in self.prepare:
            parts = [part.format(**known) for part in command]
            ended = subprocess.run(parts, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            assert ended.returncode == 0, f"{' '.join(parts)}:\n{ended.stdout.decode()}{ended.stderr.decode()}"
        return tuple(part.format(**known) for part in self.run)

    @property
    def folder(self) -> Path:
        """Of its client."""
        return ROOT / "clients" / self.name


LANGUAGES = (
    Language(
        "go",
        needs=("go",),
        prepare=(("go", "build", "-o", "{out}/function_server", "./examples/function_server"),),
        run=("{out}/function_server",),
    ),
    Language(
        "java",
        needs=("java", "mvn"),
        prepare=(("./build", "test-compile"),),
        run=("./program", "dev.leman.examples.FunctionServerExample"),
    ),
    Language("python", needs=(), run=("{python}", "examples/function_server.py")),
    Language(
        "typescript",
        needs=("node", "npm"),
        prepare=((str(ROOT / "scripts" / "npm-install"), "build"),),
        run=("node", "build/conformance/function_server.js"),
    ),
)


@dataclass(frozen=True)
class Server:
    """A function server that runs."""

    process: subprocess.Popen[bytes]
    port: int


@contextmanager
def started(language: Language, command: tuple[str, ...], *options: str) -> Iterator[Server]:
    """Start a server that `Language.build` gave the command of, at a free port, and kill it afterwards."""
    process = subprocess.Popen(
        [*command, "--port", "0", *options], cwd=language.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Server(process, int(json.loads(process.stdout.readline())["port"]))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
