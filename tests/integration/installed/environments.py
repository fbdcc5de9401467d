"""Environments of people who have the wheels and no checkout."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path

from packaging.requirements import Requirement

from tests.conftest import ROOT

UV = Path(sys.executable).parent / "uv"
#: Of this project, in the environment of the tests as editable installs.
_OURS = {"leman", "leman-services"}


class Environment:
    """A virtual environment of its own, in which nothing of the checkout can be seen."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        _run([str(UV), "venv", "-q", "--no-python-downloads", "--python", python, str(folder)])

    def install_offline(self, wheels: Iterable[Path], extras: frozenset[str] = frozenset()) -> None:
        """Install wheels of ours, and what they need as it is installed for the tests; check that nothing misses."""
        wheels = list(wheels)
        self._uv("install", "--offline", "--no-deps", *map(str, wheels))
        into = Path(self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        names = [re.sub(r"-\d.*", "", wheel.name).replace("_", "-") for wheel in wheels]
        for name in sorted(_needed(names)):
            _link(metadata.distribution(name), into)
        self._uv("check")

    def install(self, wheels: Iterable[Path]) -> None:
        """Install wheels of ours, and what they need from where packages come from on this machine."""
        constraints = ("--constraint", str(ROOT / "requirements" / "runtime.txt"))
        self._uv("install", *constraints, *map(str, wheels), settings=_settings())

    def run(self, *arguments: str, cwd: Path | None = None, code: int = 0, apart: bool = False) -> str:
        """What Python prints, on stdout and stderr (`apart`: on stdout), when it ends with `code`."""
        return self._ended([str(self.python), *arguments], cwd, code, apart=apart)

    def program(self, name: str, *arguments: str, cwd: Path | None = None, code: int = 0) -> str:
        """What a program of the environment prints."""
        return self._ended([str(self.folder / "bin" / name), *arguments], cwd, code)

    def _ended(self, command: list[str], cwd: Path | None, code: int, *, apart: bool = False) -> str:
        names = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        clean = {key: value for key, value in os.environ.items() if key not in names and not key.startswith("LEMAN_")}
        clean |= {"LEMAN_SPARK__CLASS_ARCHIVE": "false"}
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + (done.stderr or "")
        return done.stdout

    def _uv(self, verb: str, *arguments: str, settings: dict[str, str] | None = None) -> None:
        command = [str(UV), "pip", verb, "-q", "--python", str(self.python), *arguments]
        _run(command, {**os.environ, **(settings or {})})


def find_python(version: str) -> str | None:
    """A Python of this version: on the path, or where the one that runs the tests is next to others."""
    beside = sorted(Path(sys.base_prefix).resolve().parent.glob(f"{version}*/bin/python3"))
    for candidate in (shutil.which(f"python{version}"), *map(str, beside)):
        if candidate is not None:
            done = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False)
            if done.stdout.startswith(f"Python {version}."):
                return candidate
    return None


def build_wheels(out: Path) -> tuple[Path, Path]:
    """The wheels of the client and of the services, as `./leman wheels` builds them."""
    done = subprocess.run(
        [str(ROOT / "leman"), "wheels", str(out)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    client, services = map(Path, done.stdout.splitlines())
    return client, services


def first_snippet(page: str) -> str:
    """The first Python program of a page."""
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def _needed(names: Iterable[str]) -> set[str]:
    """What distributions need, and what these need; without ours, whose extras are known from their own metadata."""
    found: set[str] = set()
    left: list[tuple[str, frozenset[str]]] = [(name, frozenset()) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        name, extras = left.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name not in _OURS:
            found.add(name)
        for text in metadata.distribution(name).requires or ():
            needed = Requirement(text)
            given = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if needed.marker is None or any(needed.marker.evaluate(one) for one in given):
                left.append((needed.name, frozenset(needed.extras)))
    return found


def _link(distribution: metadata.Distribution, into: Path) -> None:
    """Give a distribution that is installed for the tests to another environment of the same Python."""
    home = Path(sysconfig.get_path("purelib"))
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if source.suffix == ".pyc" or not source.is_file() or not source.resolve().is_relative_to(home.resolve()):
            continue
        target = into / source.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            try:
                os.link(source, target)
            except OSError:  # another disk
                shutil.copy2(source, target)


def _settings() -> dict[str, str]:
    """What the launcher tells uv of where packages come from."""
    loader = SourceFileLoader("leman_launcher", str(ROOT / "leman"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    launcher = importlib.util.module_from_spec(spec)
    loader.exec_module(launcher)
    settings: dict[str, str] = launcher.uv_settings([sys.executable, "-m", "pip"])
    return settings
