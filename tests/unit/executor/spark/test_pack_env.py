"""The archive of an environment runs where it is unpacked, without the environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from leman_core.model.service_errors import FailedPrecondition
from leman_executor.spark import pack_env

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with an editable package, and Leman installed in the same way."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    (folder / "src" / "mine").mkdir(parents=True)
    (folder / "src" / "mine" / "__init__.py").write_text("WHERE = __file__\n")
    (site / "mine.pth").write_text(f"{folder / 'src'}\n")
    roots = ("core", "planner", "executor", "commit_coordinator", "local", "clients/python")
    (site / "leman.pth").write_text("".join(f"{ROOT / root}\n" for root in roots))
    (site / "pyspark" / "jars").mkdir(parents=True)
    (site / "pyspark" / "jars" / "big.jar").write_text("not for workers")
    (site / "pyspark" / "__init__.py").write_text("")
    return folder / "venv"


def packed(environment: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [environment / "bin" / "python", "-P", "-m", "leman_executor.spark.pack_env", str(out)]
    return subprocess.run(command, capture_output=True, text=True, cwd=out.parent, check=False)


@pytest.mark.long
def test_it_runs_elsewhere_with_what_was_installed_as_editable(environment, tmp_path):
    out = tmp_path / "env.tar.gz"
    done = packed(environment, out)
    assert done.returncode == 0, done.stderr
    assert f"{out}#leman-env" in done.stdout
    home = tmp_path / "else where"
    with tarfile.open(out) as archive:
        names = archive.getnames()
        archive.extractall(home, filter="fully_trusted")
    assert not [name for name in names if name.endswith(".jar") or "site-packages/tests" in name]
    look = "import sys, ssl, mine, leman_core.model.service_errors, leman_executor.spark.pack_env, importlib.util\n"
    look += "print(sys.prefix, mine.WHERE, importlib.util.find_spec('leman').origin, *sys.path)"
    command = [home / "bin" / "python", "-I", "-c", look]
    said = subprocess.check_output(command, env={"PATH": "/usr/bin:/bin"}, text=True, cwd="/")
    assert str(home) in said
    assert str(environment) not in said
    assert str(sys.base_prefix) not in said.replace(str(home), "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else where", "env.tar.gz"]


def test_an_editable_install_that_only_works_here_is_named(environment, tmp_path):
    site = next(environment.glob("lib/python*/site-packages"))
    finder = site / "__editable___theirs_1_0_finder.py"
    finder.write_text("")
    try:
        done = packed(environment, tmp_path / "env.tar.gz")
    finally:
        finder.unlink()
    assert done.returncode == 1
    assert "__editable___theirs_1_0_finder.py" in done.stderr
    assert "is an editable install that only works on this machine" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_everything_that_is_installed_is_in_it_also_what_has_folders_called_like_packages_of_leman():
    into = f"lib/{pack_env._PYTHON}/site-packages"
    names = {name.removeprefix(f"{into}/") for _, name in pack_env._installed(into)}
    beside = {"numpy/_core", "pandas/core", "pyspark/core", "lance", "pyarrow", "grpc", "redis"}
    for package in (*pack_env._OURS, *beside):
        assert f"{package}/__init__.py" in names
    top = {name.partition("/")[0] for name in names}
    site = Path(sysconfig.get_path("purelib"))
    installed = {path.name for path in site.iterdir() if (path / "__init__.py").is_file()}
    assert installed <= top


def test_a_conda_environment_is_left_to_conda_pack(tmp_path, monkeypatch):
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(FailedPrecondition, match="pack it with conda-pack") as refused:
        pack_env.pack(tmp_path / "env.tar.gz")
    assert refused.value.reason == "NOT_PACKABLE"
