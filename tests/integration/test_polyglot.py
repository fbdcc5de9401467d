"""The example in four languages, whole where their toolchains are; and what it says where they are not."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.polyglot import build, main
from tests.conftest import ROOT, System

HERE = ROOT / "examples" / "polyglot"
PROGRAMS = ("ingest/main.go", "Vocabulary.java", "watch.mts", "read.py")
needs_toolchains = pytest.mark.skipif(bool(build.missing()), reason=" ".join(build.missing()))


@pytest.fixture
def demo(system: System, tmp_path: Path, monkeypatch, capfd) -> Callable[..., str]:
    """Runs the example over the files of a little folder, and gives what it printed."""
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "one.py").write_text("a = b + a\n")
    (source / "package" / "two.py").write_text("# café é_1 2\n")
    at = {"endpoint": system.service["executor"], "token": system.service["token"]}
    connect = main.leman.connect
    monkeypatch.setattr(main.leman, "connect", lambda path: connect(path, **at))
    monkeypatch.setattr(main, "services", lambda _path: (at["endpoint"], at["token"]))
    monkeypatch.setattr(main.sysconfig, "get_path", lambda _name: str(source))

    def run(*arguments: str, ends: int = 0) -> str:
        code = main.main(["--path", str(tmp_path / "a lake, né 1"), *arguments])
        shown = capfd.readouterr()
        assert code == ends, shown.out + shown.err
        return shown.out if ends == 0 else shown.err

    return run


def lines_of(shown: str, language: str) -> list[str]:
    return [line.removeprefix(language).strip() for line in shown.splitlines() if line.startswith(language)]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)  # the first run builds the clients
@needs_toolchains
def test_each_language_does_its_part_and_another_run_has_nothing_to_do(demo):
    first = demo()

    assert "appended 2 files, 0 were there" in lines_of(first, "Go")
    assert "computed vocabulary for 2 files, batches: 1" in lines_of(first, "Java")
    done = re.search(r"had vocabulary@([0-9a-f]{12}) computed for 2 rows: DONE", first)
    assert done is not None
    assert [line.split() for line in lines_of(first, "Python")[:3]] == [
        ["different", "words", "file"],
        ["2", "one.py"],
        ["2", "two.py"],
    ]
    table = first.partition("What each language did")[2]
    assert [line.split()[0] for line in table.strip().splitlines()[1:]] == ["Go", "Java", "TypeScript", "Python"]

    again = demo()

    assert all("built before" in lines_of(again, language) for language in ("Go", "Java", "TypeScript"))
    assert "appended 0 files, 2 were there" in lines_of(again, "Go")
    assert "computed vocabulary for 0 files, batches: 0" in lines_of(again, "Java")


@pytest.mark.spark
@pytest.mark.timeout(600)
@needs_toolchains
@pytest.mark.long
def test_one_that_is_interrupted_ends_its_programs(demo, monkeypatch):
    started = []

    def interrupted(program):
        started.append(program._process)
        os.kill(os.getpid(), signal.SIGINT)
        started[0].wait(60)

    until = main._Program.until
    with monkeypatch.context() as patch:
        patch.setattr(main._Program, "until", lambda *given: started.append(given[0]._process) or until(*given))
        patch.setattr(main._Program, "finish", interrupted)
        assert "interrupted; the same command continues from here" in demo(ends=130)

    assert len(started) == 2, "Java and Go"
    assert all(process.returncode is not None for process in started)


@needs_toolchains
@pytest.mark.timeout(600)
def test_the_page_shows_how_far_the_job_is():
    next(one for one in build.BUILDS if one.language == "TypeScript").make()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{nobody.getsockname()[1]}"  # so it waits for services
        command = ["node", str(build.NODE / "build" / "polyglot" / "watch.mjs"), endpoint, "lake", "grpc://127.0.0.1:1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                page = process.stdout.readline().split()[-1]
                with urllib.request.urlopen(page, timeout=30) as response:
                    assert 'new EventSource("/progress")' in response.read().decode()
                with urllib.request.urlopen(f"{page}/progress", timeout=30) as events:
                    assert events.headers["content-type"] == "text/event-stream"
                    assert events.readline() == b'data: {"state":"STARTING","done":0,"of":0}\n'
            finally:
                process.kill()


def test_what_is_missing_is_told_in_a_line_for_each_language(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "examples.polyglot.main"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "leman demo polyglot: Go is missing: there is no go here (see go.dev/dl)",
        "leman demo polyglot: Java is missing: there is no java and no javac and no mvn here"
        " (see adoptium.net and maven.apache.org)",
        "leman demo polyglot: TypeScript is missing: there is no node and no npm here (see nodejs.org)",
    ]


@needs_toolchains
@pytest.mark.timeout(300)  # the packages may have to be downloaded
def test_the_programs_are_formatted():
    subprocess.run([sys.executable, str(ROOT / "scripts" / "npm-install")], check=True)
    prettier = (
        str(build.NODE / "node_modules" / ".bin" / "prettier"),
        "--config",
        str(build.NODE / ".prettierrc.json"),
    )
    subprocess.run([*prettier, "--check", "watch.mts", "tsconfig.json"], cwd=HERE, check=True)
    go = subprocess.run(["gofmt", "-l", "ingest"], cwd=HERE, capture_output=True, text=True, check=True)
    assert go.stdout == ""


def test_no_program_is_longer_than_a_page():
    lengths = {name: len((HERE / name).read_text().splitlines()) for name in PROGRAMS}

    assert all(length <= 60 for length in lengths.values()), lengths
