"""The derived version: the same for the same source anywhere, another one when anything that counts changes."""

from __future__ import annotations

import ast
import enum
import functools
import linecache
import re
import subprocess
import sys
import textwrap
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import pytest

import leman
from leman._functions.version_digest import derive_version
from leman.errors import UdfDefinitionError, VersionRequired

HELPERS = """
    SCALE = 3
    WORDS = {"a", "b", "c"}

    def helper(x):
        return twice(x) * SCALE

    def twice(x):
        return 2 * x

    def unused(x):
        return x
"""
MAIN = """
    import helpers
    import leman
    import math

    LIMIT = {"low": 1, "high": [2, 3.5]}

    def outer(factor):
        @leman.udf
        def f(x: int, step=5) -> int:
            "The documentation."
            # a comment
            return helpers.helper(x) + LIMIT["low"] + step + factor + math.floor(1.5)
        return f

    f = outer(7)
"""
PROBE = """
    import sys
    for folder in sys.argv[1:]:
        sys.path.insert(0, folder)
        import main
        print(main.f.version)
        del sys.modules["main"], sys.modules["helpers"], sys.path[0]
"""
NO_CHANGE = {
    "comments": ("# a comment", "# another\n            # comment"),
    "docstring": ('"The documentation."', '"""Other words."""'),
    "layout": ("return helpers.helper(x) +", "return  (helpers.helper( x )) +"),
    "neighbours": ("f = outer(7)", "f = outer(7)\n    def other(): return 1"),
}
CHANGE = {
    "the function": ("+ step", "- step"),
    "a default": ("step=5", "step=6"),
    "the closure": ("outer(7)", "outer(8)"),
    "a global, deep inside": ("[2, 3.5]", "[2, 3.25]"),
    "the type of the result": ("-> int", "-> float"),
    "the input column": ("(x", "(y"),
    "another helper": ("helpers.helper", "helpers.twice"),
    "other installed code": ("math.floor", "math.ceil"),
}
CHANGE_IN_HELPERS = {
    "a helper of the helper": ("2 * x", "3 * x"),
    "a global of the helper": ("SCALE = 3", "SCALE = 4"),
}


def write(folder, main=MAIN, helpers=HELPERS):
    folder.mkdir()
    (folder / "main.py").write_text(textwrap.dedent(main))
    (folder / "helpers.py").write_text(textwrap.dedent(helpers))
    return folder


def run(code, *arguments, cwd, seed="0"):
    """What a fresh Python process prints."""
    command = [sys.executable, "-W", "error", "-B", "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([str(cwd), *sys.path])}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def replaced(text, change):
    assert change[0] in text
    return text.replace(*change)


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """The version of `f` by what was changed."""
    root = tmp_path_factory.mktemp("sources")
    folders = {"nothing": write(root / "original")}
    for name, change in {**NO_CHANGE, **CHANGE}.items():
        folders[name] = write(root / name.replace(" ", "_"), main=replaced(MAIN, change))
    for name, change in CHANGE_IN_HELPERS.items():
        folders[name] = write(root / name.replace(" ", "_"), helpers=replaced(HELPERS, change))
    unused = replaced(HELPERS, ("def unused(x):\n        return x", "def unused(x):\n        return -x"))
    folders["unused helper"] = write(root / "unused", helpers=unused)
    return dict(zip(folders, run(PROBE, *folders.values(), cwd=root), strict=True))


def test_same_source_in_other_sessions_and_folders(versions, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{16}", versions["nothing"])
    assert run(PROBE, write(tmp_path / "elsewhere"), cwd=tmp_path, seed="12345") == [versions["nothing"]]


@pytest.mark.parametrize("name", [*NO_CHANGE, "unused helper"])
def test_what_does_not_count(versions, name):
    assert versions[name] == versions["nothing"]


@pytest.mark.parametrize("name", [*CHANGE, *CHANGE_IN_HELPERS])
def test_what_counts(versions, name):
    assert versions[name] != versions["nothing"]


def test_releases_of_installed_packages_do_not_count(tmp_path):
    """As the pages on versions say."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    probe = f"import sys; sys.path.insert(0, {str(installed)!r})\n" + textwrap.dedent(PROBE)
    folder = write(tmp_path / "m", main=replaced(MAIN, ("import math", "import lib8 as math")))
    found = set()
    for release in ("def floor(x): return 1", "def floor(x): return 22"):
        (installed / "lib8.py").write_text(release)
        found.update(run(probe, folder, cwd=tmp_path))
    assert len(found) == 1


def test_script_and_imported_module_agree(versions, tmp_path):
    folder = write(tmp_path / "m", main=MAIN + "    print(f.version)\n")
    assert run("import runpy; runpy.run_path('main.py', run_name='__main__')", cwd=folder) == [versions["nothing"]]


def test_source_that_was_edited_after_the_import_is_refused(tmp_path):
    folder = write(tmp_path / "m")
    code = """
        import main, pathlib
        path = pathlib.Path("helpers.py")
        path.write_text(path.read_text().replace("2 * x", "22 * x"))
        try:
            main.f.version
        except main.leman.LemanError as error:
            print(error)
    """
    (text,) = run(code, cwd=folder)
    assert "twice() in" in text
    assert "edited since" in text
    assert "version=" in text


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def test_recursion_ends():
    assert derive_version(even) == derive_version(even)
    assert derive_version(even) != derive_version(odd)


def test_sets_have_no_order_and_dicts_have_one():
    assert derive_version({"a": 1, "b": 2}) != derive_version({"b": 2, "a": 1})
    assert derive_version({1, "x", None}) == derive_version({None, "x", 1})
    assert derive_version([1, 2]) != derive_version([2, 1])


def test_set_that_holds_itself_through_a_function_ends():
    bag = set()

    def inside():
        return bag

    bag.add(inside)
    assert derive_version(inside) == derive_version(inside)


def test_equal_and_identical_objects_are_the_same():
    shared = [1, 2]
    assert derive_version([shared, shared]) == derive_version([[1, 2], [1, 2]])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        (b"a", "a"),
        ((1,), [1]),
        (frozenset({1}), {1}),
        (None, "None"),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (functools.partial(even, 1), functools.partial(even, 2)),
    ],
)
def test_values_of_other_type_or_content_differ(one, other):
    assert derive_version(one) != derive_version(other)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int = 3
    tags: list = field(default_factory=list)


class Base:
    LEVEL = 1

    def level(self):
        return self.LEVEL


class Derived(Base):
    def __init__(self, n):
        self.n = n

    @property
    def doubled(self):
        return 2 * self.n

    @staticmethod
    def fixed():
        return even(2)


@functools.lru_cache
def remembered(n):
    return even(n)


@pytest.mark.parametrize(
    "value", [Colour, Colour.RED, Point, Point(), Derived, Derived(2), remembered, OrderedDict(a=1)]
)
def test_kinds_of_values_that_can_be_read(value):
    assert derive_version(value) == derive_version(value)


def test_objects_differ_by_state_and_classes_by_ancestors(monkeypatch):
    assert derive_version(Derived(1)) != derive_version(Derived(2))
    assert derive_version(Colour.RED) != derive_version(Colour.BLUE)
    before = derive_version(Derived)
    monkeypatch.setattr(Base, "LEVEL", 2)
    assert derive_version(Derived) != before


def test_wrapped_function_counts():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    assert derive_version(logged(even)) != derive_version(logged(odd))
    assert derive_version(functools.lru_cache(even)) != derive_version(functools.lru_cache(odd))


def test_lambdas_on_one_line_are_told_apart():
    one, two, same = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 1)
    assert derive_version(one) == derive_version(same)
    assert derive_version(one) != derive_version(two)


def typed_in(text, name="f", file="<string>"):
    namespace = {"__name__": "__main__"}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]


def test_function_whose_file_is_gone():
    function = typed_in("def f(x): return x", file="/nowhere/gone.py")
    with pytest.raises(VersionRequired, match=r"source of f\(\) cannot be read .*version="):
        derive_version(function)


TYPED = """
import math

FACTOR = 3

def helper(x):
    return [y + FACTOR for y in x]

def f(x: list, step=1):
    return (lambda y: sum(helper(y)) * 2 + step + math.floor(1.5))(x)
"""


@pytest.mark.parametrize(
    "change",
    [
        ("* 2", "* 4"),
        ("FACTOR = 3", "FACTOR = 4"),
        ("y + FACTOR", "y - FACTOR"),
        ("step=1", "step=2"),
        ("floor", "ceil"),
    ],
)
def test_what_was_typed_in_is_known_by_its_code(change):
    version = derive_version(typed_in(TYPED))
    assert derive_version(typed_in("\n\n# moved" + TYPED, file="<stdin>")) == version
    assert derive_version(typed_in(replaced(TYPED, change))) != version


TYPED_CLASS = """
from dataclasses import dataclass
from collections import namedtuple

Pair = namedtuple("Pair", "a b")

@dataclass
class F:
    n: int = 1

    def __call__(self, x: int) -> int:
        return Pair(x, self.n).a + 5
"""


@pytest.mark.parametrize("change", [("+ 5", "+ 6"), ("n: int = 1", "n: int = 2")])
def test_methods_of_a_class_that_was_typed_in_count_and_generated_ones_do_not(change):
    version = derive_version(typed_in(TYPED_CLASS, "F"))
    assert derive_version(typed_in(TYPED_CLASS, "F", "<stdin>")) == version
    assert derive_version(typed_in(replaced(TYPED_CLASS, change), "F")) != version


def test_a_program_of_the_command_line_has_a_version_that_its_text_gives():
    program = "import leman\n@leman.udf\ndef f(x: int) -> int:\n    return x * {}\nprint(f.version, repr(f.source))"

    def told(number, seed):
        (line,) = run(program.format(number), cwd=".", seed=seed)
        return line

    assert re.fullmatch(r"[0-9a-f]{16} ''", told(2, "1"))
    assert told(2, "1") == told(2, "2") != told(3, "1")


def test_function_of_a_notebook_cell(monkeypatch):
    def cell(name, text):
        lines = text.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, name, (len(text), None, lines, name))
        namespace = {"__name__": "__main__"}
        exec(compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
        return namespace["f"]

    one = cell("<ipython-input-1>", "def f(x):\n    return x + 1\n")
    moved = cell("<ipython-input-2>", "y = 3\n# moved\ndef f(x):\n    return x + 1\n")
    other = cell("<ipython-input-3>", "def f(x):\n    return x + 2\n")
    assert derive_version(one) == derive_version(moved)
    assert derive_version(one) != derive_version(other)


def test_a_cell_whose_function_calls_what_the_same_cell_imports(monkeypatch):
    """A notebook compiles each statement by itself: such calls are other code than in a file."""

    def cell(name, text):
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
        namespace = {"__name__": "__main__"}
        for statement in ast.parse(text).body:
            exec(compile(ast.Module([statement], []), name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
        return namespace["f"]

    text = "import math\nimport os.path as p\ndef f(x):\n    g = lambda y: math.floor(y)\n    return g(p.basename(x))\n"
    version = derive_version(cell("<ipython-input-4>", text))
    assert derive_version(cell("<ipython-input-5>", f"# other\n\n{text}")) == version
    assert derive_version(cell("<ipython-input-6>", text.replace("floor", "ceil"))) != version
    assert derive_version(typed_in(text, file=linecache.cache["<ipython-input-4>"][3])) == version, "as in a file"


LOCK = threading.Lock()


def locked(x):
    with LOCK:
        return nested(x)


def nested(x):
    return LOCK.locked()


def test_value_that_cannot_be_read_says_where():
    advice = r"type lock cannot be sent to workers \(at locked\(\) → LOCK\)\. Build what it holds inside the function"
    with pytest.raises(UdfDefinitionError, match=advice) as caught:
        derive_version(locked)
    assert caught.value.reason == "INVALID_UDF"


def test_a_function_that_follows_the_advice_about_a_lock_can_be_sent():
    assert leman.udf(Locked).version
    described, data = leman.udf(Locked).bundle()
    assert described.size_bytes == len(data)


class Locked:
    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, x: int) -> int:
        with self.lock:
            return x


def test_explicit_version_needs_nothing_to_be_read():
    assert leman.udf(version="7", data_type=None)(_annotated).version == "7"


def _annotated(x: int) -> bool:
    return LOCK.locked()


def test_udf_used_by_another_counts():
    inner = leman.udf(name="inner")(_one)
    changed = leman.udf(name="inner")(_two)
    named = leman.udf(name="inner", version="1")(_one)
    assert derive_version(inner) != derive_version(changed)
    assert derive_version(named) == derive_version(leman.udf(name="inner", version="1")(_two))


def _one(x: int) -> int:
    return 1


def _two(x: int) -> int:
    return 2


def test_constructor_arguments_count():
    @leman.udf
    class Add:
        def __init__(self, n=1):
            self.n = n

        def __call__(self, x: int) -> int:
            return x + self.n

    assert Add.version == Add.version
    assert len({Add.version, Add(2).version, Add(3).version}) == 3


def test_versions_are_pinned():
    """A change here makes every column in the world stale."""
    assert derive_version(1, "a", [None, 2.5], {"k": (True, b"x")}) == "a5eb40680c0a786b"
    assert derive_version(pinned) == "54879db7519e6f92"


def pinned(x, step=2):
    """Words."""
    return [y + step for y in x if y > 1] or (lambda z: -z)(x)  # noqa: PLC3002 - to have one


def test_very_long_numbers_can_be_read():
    assert derive_version(10**5000) != derive_version(10**5000 + 1)
