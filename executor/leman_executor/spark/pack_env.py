"""`python -m leman_executor.spark.pack_env FILE`: pack this Python environment as an archive for Spark's workers.

The archive is a complete Python installation that runs wherever it is unpacked. It contains the interpreter, the
standard library, and all installed packages, including Leman and editable installs. Spark's jars are left out, because
workers have them. The C library is also left out, so workers need the same processor architecture and the same or a
newer glibc.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from leman_core.model.service_errors import FailedPrecondition, LemanError

_OURS = ("leman_core", "leman_planner", "leman_executor", "leman_coordinator", "leman", "leman_internal")
_NOT_OF_STDLIB = frozenset({"site-packages", "dist-packages", "test", "idlelib", "turtledemo", "ensurepip"})
_NOT_OF_PYSPARK = frozenset({"jars", "examples", "licenses", "data", "sbin"})
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Otherwise the interpreter might look for its library in the folder where the interpreter was built.
_LAUNCHER = f"""#!/bin/sh
home=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
LD_LIBRARY_PATH="$home/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export LD_LIBRARY_PATH
exec "$home/bin/{_PYTHON}" "$@"
"""

Entry = tuple[Path, str]


def pack(out: Path) -> Path:
    """Write the archive atomically and return its path; its top folders are `bin` and `lib`.

    Raises:
        FailedPrecondition: NOT_PACKABLE, for a conda environment, for an editable install that works only on this
            machine, or if a package of Leman is not installed.
        OSError: A file cannot be read or written.
    """
    if (Path(sys.prefix) / "conda-meta").is_dir():
        raise FailedPrecondition("NOT_PACKABLE", "This is a conda environment: pack it with conda-pack")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=1) as archive:
            for path, name in _entries():
                archive.add(path, name, recursive=False)
            _add_launcher(archive, draft)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    return out


def _entries() -> Iterator[Entry]:
    base, standard = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    yield Path(sys.executable).resolve(), f"bin/{_PYTHON}"
    for library in sorted(base.glob(f"lib*/lib{_PYTHON}*.so.*")):
        yield library.resolve(), f"lib/{library.name}"
    for path in sorted(standard.iterdir()):
        if path.name not in _NOT_OF_STDLIB and not path.name.startswith("config-"):
            yield from _tree(path, f"lib/{_PYTHON}/{path.name}")
    yield from _installed(f"lib/{_PYTHON}/site-packages")


def _installed(into: str) -> Iterator[Entry]:
    """Yield all installed packages except the standard library.

    Leman comes last, because only Leman uses its file names.
    """
    for folder in dict.fromkeys(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")):
        for path in sorted(folder.iterdir()):
            if path.suffix == ".pth":
                yield from _path_entries(path, into)
            elif path.name.startswith("__editable__"):
                raise FailedPrecondition(
                    "NOT_PACKABLE",
                    f"{path.name} is an editable install that only works on this machine: install the package "
                    "without --editable",
                )
            elif path.name not in _OURS and not _has_ours(path):
                yield from _tree(path, f"{into}/{path.name}")
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise FailedPrecondition("NOT_PACKABLE", f"the package {name} is not installed here")
        yield from _tree(Path(next(iter(spec.submodule_search_locations))), f"{into}/{name}")


def _path_entries(path: Path, into: str) -> Iterator[Entry]:
    """Yield the targets of a .pth file as packages. A .pth file that contains code is also packed itself."""
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    if any(line.startswith(("import ", "import\t")) for line in lines):
        yield path, f"{into}/{path.name}"
    for line in lines:
        folder = path.parent / line
        if line.startswith("import") or not folder.is_dir() or _has_ours(folder):
            continue
        for found in sorted(folder.iterdir()):
            if found.suffix == ".py" or (found / "__init__.py").is_file():
                yield from _tree(found, f"{into}/{found.name}")


def _has_ours(folder: Path) -> bool:
    if (folder / "__init__.py").is_file():
        return False
    return any((folder / name / "__init__.py").is_file() for name in _OURS)


def _tree(path: Path, name: str) -> Iterator[Entry]:
    """Yield a file, or a folder with all its contents; replace links by their targets."""
    if path.is_dir():
        for found in sorted(path.iterdir()):
            if not (path.name == "pyspark" and found.name in _NOT_OF_PYSPARK):
                yield from _tree(found, f"{name}/{found.name}")
    elif path.is_file():
        yield path.resolve(), name


def _add_launcher(archive: tarfile.TarFile, beside: Path) -> None:
    launcher = beside.with_name(f"{beside.name}.launcher")
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    try:
        for name in ("python", "python3"):
            archive.add(launcher, f"bin/{name}")
    finally:
        launcher.unlink()


def main(argv: list[str] | None = None) -> int:
    """Pack the environment as the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(prog="leman pack-env", description="Pack this environment for Spark's workers.")
    parser.add_argument("file", type=Path, nargs="?", default=Path("leman-env.tar.gz"))
    file = parser.parse_args(argv).file.absolute()
    try:
        pack(file)
    except (LemanError, OSError) as error:
        sys.stderr.write(f"leman pack-env: {error}\n")
        return 1
    sys.stdout.write(
        f"{file}\n"
        "Put it where all of Spark's workers can read it, and start the executor with\n"
        f'  LEMAN_SPARK__CONF=\'{{"spark.archives": "{file}#leman-env"}}\'\n'
        "  LEMAN_SPARK__PYTHON=./leman-env/bin/python\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
