"""The Java client: its own tests, its examples against real services, and what checks its code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT, System

CLIENT = ROOT / "clients" / "java"
EXAMPLES = CLIENT / "examples" / "dev" / "leman" / "examples"
MISSING = [program for program in ("java", "mvn") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)} here"),
    pytest.mark.timeout(600),
]


def run(*command: str) -> str:
    """Run a program in the client's folder, and give what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
    ended = subprocess.run(
        command, cwd=CLIENT, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of what a build made: compiled, tested, packed."""
    run("./build", "package")
    return CLIENT / "target"


def test_its_own_tests_pass_and_it_is_packed_with_its_sources(built: Path):
    reports = [ElementTree.parse(path).getroot() for path in built.glob("surefire-reports/*.xml")]

    assert sum(int(report.attrib["tests"]) for report in reports) > 30
    assert not sum(int(report.attrib[what]) for report in reports for what in ("failures", "errors", "skipped"))
    assert {path.name for path in built.glob("*.jar")} == {"leman-client-0.1.0.jar", "leman-client-0.1.0-sources.jar"}


def test_the_examples_run_with_real_services(built: Path, system: System, tmp_path: Path):
    place = (str(system.service["executor"]), str(system.service["token"]), str(tmp_path / "a lake, né 1"))

    def example(name: str, *arguments: str) -> list[str]:
        return run("./program", f"dev.leman.examples.{name}", *place, *arguments).splitlines()

    told = re.search(r"It prints\n\n```\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert told is not None
    assert example("Words") == told[1].splitlines()

    *watched, jobs, failed = example("Watching", "docs")
    assert watched[-1] == "STATE_DONE 2"
    assert jobs == "1 job"
    assert failed == "FAILED_PRECONDITION COLUMN_NOT_DEFINED false true"

    *progress, header, row, stub = example("Views", "docs")
    assert progress[-1] == "2 rows"
    assert (header, row, stub) == ("shout", "TO BE OR NOT TO BE", "true")


def test_the_programs_of_the_first_page_are_examples():
    programs = re.findall(r"```java\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)

    assert len(programs) == 2
    for program, name in zip(programs, ("Words", "Functions"), strict=True):
        assert program in (EXAMPLES / f"{name}.java").read_text()


def test_the_code_is_formatted():
    run("./format", "--check")
