"""The two wheels give the README's first program a result in a separate environment, next to any other package."""

from __future__ import annotations

import json
import shutil
import signal
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.integration.installed.environments import Environment, build_wheels, find_python, first_snippet
from tests.integration.test_examples import keeps_promise
from tests.shares import LONG

#: Jobs that users have, as programs of a project.
JOBS = ("texts", "images", "paid_api", "training_view", "edit_and_rerun")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    made = Environment(tmp_path_factory.mktemp("installed") / "env")
    made.install_offline(wheels)
    return made


@pytest.fixture
def project(tmp_path):
    """A folder of a project; what runs for its database is ended after it."""
    folder = tmp_path / "project"
    folder.mkdir()
    yield folder
    for file in folder.glob("*/_leman/service.json"):
        supervisor = psutil.Process(json.loads(file.read_text())["pid"])
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(60)


def check_the_first_program(environment: Environment, project: Path) -> None:
    (project / "words.py").write_text(first_snippet((ROOT / "README.md").read_text()))
    printed = environment.run("words.py", cwd=project)
    table = printed[printed.index("text") :].split()
    assert [table[-1], table[-2], table[-3]] == ["2", "words", "more"], printed
    assert "to be or not to be" in printed
    assert environment.program("leman", "tables", "ls", "lake", cwd=project).count("docs") == 1


def test_the_first_program_of_the_readme_has_a_result(environment, project):
    check_the_first_program(environment, project)
    told = environment.run(
        "-c", "import leman, leman_planner; print(leman.__file__, leman_planner.__file__)", cwd=project
    )
    assert str(ROOT) not in told


@pytest.mark.long
def test_a_project_may_have_packages_that_are_called_like_those_of_the_services(environment, project):
    """One that is installed, and modules next to the script."""
    home = Path(environment.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    installed = {"core/__init__.py": "", "core/text.py": "def shout(text):\n    return text.upper()\n"}
    for name, text in installed.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    (project / "planner.py").write_text("def ask(text):\n    return text + '?'\n")
    program = """
        import core.text, leman, planner
        import pyarrow as pa

        @leman.udf
        def loud(text: str) -> str:
            return planner.ask(core.text.shout(text))

        table = leman.connect("lake").create_table("docs", pa.table({"text": ["is it so"]}))
        table.add_columns({"loud": loud})
        table.backfill("loud")
        print(table.to_arrow(["loud"]).to_pylist())
    """
    (project / "program.py").write_text(textwrap.dedent(program))
    try:
        printed = environment.run("program.py", cwd=project)
    finally:
        shutil.rmtree(home / "core")
    assert "[{'loud': 'IS IT SO?'}]" in printed


def test_the_client_alone_needs_neither_spark_nor_lance_and_says_what_else_there_is(wheels, tmp_path):
    alone = Environment(tmp_path / "env")
    alone.install_offline(wheels[:1])
    program = """
        import sys, leman
        assert not {"lance", "pyspark", "numpy"} & set(sys.modules), sorted(sys.modules)
        try:
            leman.connect("lake").create_table("docs", [{"text": "a"}])
        except leman.LemanError as error:
            print(error.reason, error)
    """
    printed = alone.run("-c", textwrap.dedent(program))
    assert printed.startswith("SERVICES_NOT_INSTALLED")
    assert "leman[local]" in printed
    assert "leman[local]" in alone.program("leman", "up", "lake", code=1)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.skipif(not LONG, reason="installs from the registry; LEMAN_LONG=1 does")
def test_in_every_python(version, wheels, project, tmp_path):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    made = Environment(tmp_path / "env", python)
    made.install(wheels)
    check_the_first_program(made, project)
    for job in JOBS:
        program = project / f"{job}.py"
        shutil.copy(ROOT / "examples" / program.name, program)
        began = time.monotonic()
        printed = made.run(program.name, "lake", cwd=project, apart=True)
        print(f"Python {version}: {job} took {time.monotonic() - began:.1f} s")  # noqa: T201 -- shown with -s
        assert keeps_promise(program, printed), printed
