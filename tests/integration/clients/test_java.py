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
from tests.integration.clients.conftest import first_program

CLIENT = ROOT / "clients" / "java"
EXAMPLES = CLIENT / "examples" / "dev" / "leman" / "examples"
MISSING = [program for program in ("java", "mvn") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)} here"),
    pytest.mark.timeout(600),
]


def run(*command: str, folder: Path = CLIENT) -> str:
    """Run a program, in the client's folder or another one, and give what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
    ended = subprocess.run(
        command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of what a build made: compiled, tested, packed."""
    run("./build", "package")
    return CLIENT / "target"


@pytest.mark.long
def test_its_own_tests_pass_and_it_is_packed_with_its_sources(built: Path):
    reports = [ElementTree.parse(path).getroot() for path in built.glob("surefire-reports/*.xml")]

    assert sum(int(report.attrib["tests"]) for report in reports) > 30
    assert not sum(int(report.attrib[what]) for report in reports for what in ("failures", "errors", "skipped"))
    assert {path.name for path in built.glob("*.jar")} == {"leman-client-0.1.0.jar", "leman-client-0.1.0-sources.jar"}


@pytest.mark.long
def test_the_examples_run_with_real_services(built: Path, system: System, tmp_path: Path):
    place = (str(system.service["executor"]), str(system.service["token"]), str(tmp_path / "a lake, né 1"))
    with system.connect(Path(place[2])) as lake:
        lake.create_table(
            "docs", [{"text": text, "letters": len(text)} for text in ("to be or not to be", "that is the question")]
        )

    def example(name: str, *arguments: str) -> list[str]:
        return run("./program", f"dev.leman.examples.{name}", *place, *arguments).splitlines()

    *watched, jobs, failed = example("Watching", "docs")
    assert watched[-1] == "STATE_DONE 2"
    assert jobs == "1 job"
    assert failed == "FAILED_PRECONDITION COLUMN_NOT_DEFINED false true"

    *progress, header, row, stub = example("Views", "docs")
    assert progress[-1] == "2 rows"
    assert (header, row, stub) == ("shout", "TO BE OR NOT TO BE", "true")


@pytest.mark.long
def test_the_first_program_prints_what_it_says(built: Path, beside_lake: Path):
    program, printed = first_program(CLIENT / "README.md", "java")
    (beside_lake / "Words.java").write_text(program)
    compiled = f"{built / 'classes'}:{(built / 'classpath').read_text()}"

    told = run("java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", compiled, "Words.java", folder=beside_lake)

    assert told == printed


def test_the_first_page_names_what_a_build_takes():
    page = (CLIENT / "README.md").read_text()
    (written,) = re.findall(r"```xml\n(.*?)```", page, re.DOTALL)
    named, own = (ElementTree.fromstring(text) for text in (written, (CLIENT / "pom.xml").read_text()))

    assert _packages(named.findall(".//{*}dependency")) < _packages([own, *own.findall(".//{*}dependency")])
    assert re.findall(r"```java\n(.*?)```", page, re.DOTALL)[1] in (EXAMPLES / "Functions.java").read_text()


def _packages(named: list[ElementTree.Element]) -> set[tuple[str | None, ...]]:
    return {tuple(one.findtext(f"{{*}}{part}") for part in ("groupId", "artifactId", "version")) for one in named}


@pytest.mark.lint
def test_the_code_is_formatted():
    run("./format", "--check")
