"""The place of a module's file shows whether it is the user's own, whatever the module is called."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap

import pytest

from leman._functions.source_code import is_installed
from leman._functions.version_digest import derive_version

MAIN = """
    import pathlib, sys
    import leman
    import {name} as mine

    @leman.udf
    def f(text: str) -> str:
        return mine.run(text) + str(mine.Kind.LEVEL)

    pathlib.Path(sys.argv[1]).write_bytes(f.bundle()[1])
    print(f.version, f("x"))
"""
MODULE = """
    class Kind:
        LEVEL = {level}

    def run(text):
        return {level} * text
"""
LOAD = "import pathlib, sys, pickle; print(*(pickle.loads(pathlib.Path(p).read_bytes())('x') for p in sys.argv[1:]))"
NAMES = {
    "one of the standard library": ("profile", "profile.py"),
    "a package of the standard library": ("test", "test/__init__.py"),
    "a module of a package of the standard library": ("wsgiref.mine", "wsgiref/mine.py"),
    "an installed distribution": ("six", "six.py"),
}


def python(folder, *arguments):
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("named_like", "way"), [*((name, ["main.py"]) for name in NAMES), (next(iter(NAMES)), ["-m", "main"])]
)
def test_a_module_of_the_users_own_travels_and_its_edits_count(named_like, way, tmp_path):
    name, place = NAMES[named_like]
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    (source / place).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (source / "main.py").write_text(textwrap.dedent(MAIN).format(name=name))
    if place.count("/") and not place.endswith("__init__.py"):
        (source / place).with_name("__init__.py").write_text("")
    versions = set()
    for level in (2, 3):
        (source / place).write_text(textwrap.dedent(MODULE).format(level=level))
        version, here = python(source, "-B", *way, str(elsewhere / f"sent{level}"))
        assert here == "x" * level + str(level)
        versions.add(version)
    assert python(elsewhere, "-P", "-c", LOAD, "sent2", "sent3") == ["xx2", "xxx3"]
    assert len(versions) == 2


def test_a_file_that_was_loaded_under_the_name_of_an_installed_module_counts(tmp_path):
    program = """
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("six", sys.argv[1])
        mine = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(mine)
        import leman, six
        run, kind = mine.run, mine.Kind
        @leman.udf
        def f(x: str) -> str:
            return run(x) + str(kind.LEVEL)
        print(f.version)
    """
    (tmp_path / "main.py").write_text(textwrap.dedent(program))
    found = []
    for level in (2, 3):
        (tmp_path / f"plugin{level}.py").write_text(textwrap.dedent(MODULE).format(level=level))
        found += python(tmp_path, "main.py", f"plugin{level}.py")
    assert found[0] != found[1]


def test_classes_that_the_standard_library_names_as_its_own_count():
    one, two = (dataclasses.make_dataclass("X", [("a", int, default)]) for default in (1, 2))
    assert derive_version(one) != derive_version(two)


def test_all_of_the_standard_library_is_installed():
    assert [name for name in sys.stdlib_module_names if not is_installed(name)] == []


@pytest.mark.parametrize(
    "name", ["os.path", "xml.etree.ElementTree", "pyexpat.errors", "numpy.linalg", "leman._functions.udf_decorator"]
)
def test_parts_of_what_is_installed_are_installed(name):
    __import__(name)
    assert is_installed(name)
