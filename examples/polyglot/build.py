"""Builds the programs of this folder that have to be built, each once: what has not changed is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from examples.demo.output import say
from leman.progress import duration

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLIENTS = ROOT / "clients"
BUILT = HERE / "build"
JAVA, NODE = CLIENTS / "java", CLIENTS / "typescript"
SUFFIXES = {".go", ".java", ".json", ".mod", ".properties", ".sum", ".mts", ".ts", ".xml"}


class BuildError(Exception):
    """A program cannot be built; the message has the last lines of what the compiler said."""


def missing() -> list[str]:
    """What toolchains lack on this machine, a line for each language."""
    lacking = {one: [program for program in one.needs if shutil.which(program) is None] for one in BUILDS}
    return [
        f"{one.language} is missing: there is no {' and no '.join(programs)} here (see {one.found_at})"
        for one, programs in lacking.items()
        if programs
    ]


def everything() -> dict[str, list[str]]:
    """Build what has changed, and give the command of each program.

    Raises:
        BuildError: a step failed.
    """
    BUILT.mkdir(exist_ok=True)
    for one in BUILDS:
        one.make()
    classes = f"{BUILT}:{JAVA / 'target' / 'classes'}:{(JAVA / 'target' / 'classpath').read_text()}"
    return {
        "Go": [str(BUILT / "ingest")],
        "Java": ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", classes, "Vocabulary"],
        "TypeScript": ["node", str(NODE / "build" / "polyglot" / "watch.mjs")],
    }


@dataclass(frozen=True)
class Build:
    """How the program of a language is built.

    `needs`: programs, with where they come from. `reads`: files and folders that it is made of. `makes`: what is there
    when it is built. `steps`: commands, each with its folder.
    """

    language: str
    needs: tuple[str, ...]
    found_at: str
    reads: tuple[Path, ...]
    makes: Path
    steps: tuple[tuple[Path, tuple[str, ...]], ...]

    def digest(self) -> str:
        """A digest of the files that it is made of."""
        whole = hashlib.sha256()
        for path in sorted(file for read in self.reads for file in _files(read)):
            whole.update(f"{path}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()

    def make(self) -> None:
        """Build it, unless that was done.

        Raises:
            BuildError: a step failed.
        """
        stamp, digest = BUILT / f"{self.language}.built", self.digest()
        if self.makes.exists() and stamp.exists() and stamp.read_text() == digest:
            say(f"{self.language:10} built before")
            return
        begun = time.perf_counter()
        for folder, command in self.steps:
            shown = " ".join(part.replace(f"{ROOT}/", "") for part in command)
            say(f"{self.language:10} $ {shown[:100]}")
            ended = subprocess.run(
                command,
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if ended.returncode:
                last = (ended.stdout + ended.stderr).strip().splitlines()[-8:]
                raise BuildError("\n  ".join([f"{shown} failed:", *last]))
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
        say(f"{self.language:10} built in {duration(time.perf_counter() - begun)}")


BUILDS = (
    Build(
        "Go",
        needs=("go",),
        found_at="go.dev/dl",
        reads=(HERE / "ingest", CLIENTS / "go"),
        makes=BUILT / "ingest",
        steps=((HERE / "ingest", ("go", "build", "-o", str(BUILT / "ingest"), ".")),),
    ),
    Build(
        "Java",
        needs=("java", "javac", "mvn"),
        found_at="adoptium.net and maven.apache.org",
        reads=(HERE / "Vocabulary.java", JAVA / "src", JAVA / "pom.xml"),
        makes=BUILT / "Vocabulary.class",
        steps=(
            (JAVA, ("./build", "test-compile")),
            (
                JAVA,
                ("sh", "-c", f"javac -d '{BUILT}' -cp target/classes:$(cat target/classpath) '{HERE}/Vocabulary.java'"),
            ),
        ),
    ),
    Build(
        "TypeScript",
        needs=("node", "npm"),
        found_at="nodejs.org",
        reads=(HERE / "watch.mts", HERE / "tsconfig.json", NODE / "src", NODE / "package-lock.json"),
        makes=NODE / "build" / "polyglot" / "watch.mjs",
        steps=(
            (ROOT, (sys.executable, "scripts/npm-install", "build")),
            (HERE, (str(NODE / "node_modules" / ".bin" / "tsc"), "-p", "tsconfig.json")),
        ),
    ),
)


def _files(read: Path) -> Iterator[Path]:
    """Sources below a folder, or the file itself."""
    yield from (path for path in ([read] if read.is_file() else read.rglob("*")) if path.suffix in SUFFIXES)


def _environment() -> dict[str, str]:
    """The environment of a build: Maven takes the Java of the compiler, which that of Spark need not have."""
    compiler = shutil.which("javac")
    return {**os.environ, **({"JAVA_HOME": str(Path(compiler).resolve().parents[1])} if compiler else {})}
