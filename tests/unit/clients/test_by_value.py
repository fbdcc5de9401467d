"""What the standard library makes of a user's own functions travels with their code, not by a name."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from fnmatch import _compile_pattern  # any function of the standard library that has a cache
from types import CodeType

import cloudpickle
import pytest
from cloudpickle import cloudpickle as internals

import leman
from leman.errors import UdfDefinitionError

HELPERS = """
    import functools
    import typing

    Points = typing.NewType("Points", int)
    P = typing.ParamSpec("P")

    @functools.lru_cache
    def h(x: Points):
        return x * 10

    def q(x, by: typing.Callable[P, int] = h):
        return by(x) + h(x)

    @functools.cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @functools.lru_cache(maxsize=3, typed=True)
    def bounded(x):
        return x

    bounded.unit = 1000

    @functools.singledispatch
    def size(value):
        return 0

    @size.register
    def _(value: int):
        return size("text") + 1

    @size.register(list)
    def _(value):
        return sum(map(size, value))

    class Model:
        @functools.cached_property
        def weight(self):
            return 7

        @functools.lru_cache
        def score(self, x):
            return x + self.weight

        @staticmethod
        @functools.cache
        def plain(x):
            return x

        @functools.singledispatchmethod
        def kind(self, value):
            return 1
"""
FUNCTION = """
    import leman

    @leman.udf
    def f(x: int) -> int:
        model = Model()
        total = h(x) + q(x) + fibonacci(10) + size([1, 2, "a"]) + bounded(x) * bounded.unit
        return total + model.score(x) + model.plain(x) + model.kind(x)
"""
USE = "from {} import Model, bounded, fibonacci, h, q, size\n"
SEND = "\nimport pathlib, sys\npathlib.Path(sys.argv[1]).write_bytes(f.bundle()[1])\nprint(f.version, f(2))\n"
LOAD = """
    import pathlib, sys, cloudpickle
    f = cloudpickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
    names = f.__globals__
    print(f(2), *names["bounded"].cache_parameters().values(), names["h"].__name__)
"""


def run(folder, *command):
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("place", ["script", "module", "package"])
def test_a_function_whose_helpers_are_wrapped_by_functools_runs_where_they_are_not(place, tmp_path):
    helpers, function = textwrap.dedent(HELPERS), textwrap.dedent(FUNCTION)
    (tmp_path / "elsewhere").mkdir()
    if place == "module":
        (tmp_path / "mine.py").write_text(helpers)
    elif place == "package":
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "__init__.py").write_text(USE.format("mine.deep"))
        (tmp_path / "mine" / "deep.py").write_text(helpers)
    (tmp_path / "main.py").write_text((helpers if place == "script" else USE.format("mine")) + function + SEND)
    sent = tmp_path / "elsewhere" / "sent"
    version, here = run(tmp_path, "main.py", str(sent))
    assert run(sent.parent, "-P", "-c", textwrap.dedent(LOAD), str(sent)) == [here, "3", "True", "h"]
    assert len(version) == 16


def test_a_cached_helper_stays_as_it_was_sent_when_its_package_is_edited(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine").mkdir()
    module = tmp_path / "mine" / "__init__.py"
    module.write_text(textwrap.dedent(HELPERS))
    (tmp_path / "main.py").write_text(USE.format("mine") + textwrap.dedent(FUNCTION) + SEND)
    sent = tmp_path / "elsewhere" / "sent"
    version, here = run(tmp_path, "main.py", str(sent))
    module.write_text(textwrap.dedent(HELPERS).replace("x * 10", "x * 1000"))
    load = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mine\n{textwrap.dedent(LOAD)}"
    assert run(sent.parent, "-P", "-c", load, str(sent))[0] == here
    other, there = run(tmp_path, "main.py", str(tmp_path / "other"))
    assert (other != version, there != here) == (True, True)


class _ByName:
    def __reduce__(self):
        return "SENTINEL"


SENTINEL = _ByName()


def test_what_only_its_name_could_send_is_refused_with_the_path_to_it():
    def helper():
        return SENTINEL

    @leman.udf
    def f(x: int) -> bool:
        return helper() is None

    with pytest.raises(UdfDefinitionError, match=r"SENTINEL.* sent by its name only.* \(at .*f\(\) → helper → .*SENTI"):
        _ = f.version
    with pytest.raises(UdfDefinitionError, match=r"SENTINEL.* sent by its name only"):
        f.bundle()


def test_an_installed_function_with_a_cache_is_sent_by_its_name():
    @leman.udf
    def f(x: str) -> bool:
        return _compile_pattern(x) is None

    assert cloudpickle.loads(f.bundle()[1]).__globals__["_compile_pattern"] is _compile_pattern


def test_code_keeps_its_file_and_qualified_name_whatever_cloudpickle_does(monkeypatch):
    def anonymous(code):  # as from 3.1.3 on
        make, arguments = reduced(code)
        return make, tuple("<dynamic-code>" if item == __file__ else item for item in arguments)

    reduced = internals._code_reduce
    monkeypatch.setitem(cloudpickle.Pickler._dispatch_table, CodeType, anonymous)

    @leman.udf
    def f(x: int) -> int:
        return max([x], key=lambda item: item)

    loaded = cloudpickle.loads(f.bundle()[1])
    inner = next(item for item in loaded.__code__.co_consts if isinstance(item, CodeType))
    for code, name in [(loaded.__code__, ".f"), (inner, ".f.<locals>.<lambda>")]:
        assert code.co_filename == __file__
        assert code.co_qualname.endswith(f"<locals>{name}")
    assert cloudpickle.dumps(f.func).count(b"<dynamic-code>")
