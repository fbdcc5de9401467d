"""What a function's source is, for people: registered with it, and shown where it changed."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import leman
from leman._functions import source_code
from leman._functions.version_digest import source_text

SCALE = 3
API_KEY = "sk-very-secret"
WORDS = {"b", "a"}


def helper(x: int) -> int:
    # a comment stays
    return x * SCALE + len(API_KEY) + len(WORDS)


@leman.udf
def score(x: int) -> int:
    return helper(x)


@leman.udf(version="7")
def pinned(x: int) -> int:
    return helper(x)


@leman.udf
class Times:
    factor = 2

    def __init__(self, by: int = 1, key: str = "") -> None:
        self.by = by
        self.key = key

    def __call__(self, x: int) -> int:
        return x * self.by * self.factor


def test_it_has_the_function_its_helpers_and_the_numbers_that_they_read() -> None:
    text = score.source
    assert text.startswith("API_KEY = <str ")
    assert "SCALE = 3" in text
    assert "@leman.udf\ndef score(x: int) -> int:\n    return helper(x)" in text
    assert "    # a comment stays\n    return x * SCALE" in text
    assert text.index("def score") < text.index("def helper")
    assert score.describe().source == text


def test_texts_that_may_be_secret_are_not_in_it_and_their_changes_are_seen(monkeypatch) -> None:
    before = score.source
    assert "secret" not in before
    monkeypatch.setitem(globals(), "API_KEY", "sk-other-secret")
    assert score.source != before
    assert "secret" not in Times(3, key="sk-very-secret").source


def test_a_class_says_what_it_is_built_with() -> None:
    text = Times(3, key="k").source
    assert text.startswith("Times(3, key=<str ")
    assert "Times.factor = 2" in text
    assert "def __call__(self, x: int) -> int:" in text
    assert Times(3).source != Times(4).source


def model(directory: Path, field: str) -> leman.UDF:
    """A function around a pydantic model of a module of its own."""
    name = f"models_{abs(hash(field))}"
    (directory / f"{name}.py").write_text(
        "import pydantic\n\nclass Answer(pydantic.BaseModel):\n    model_config = pydantic.ConfigDict(strict=True)\n"
        f"    {field}\n    key: str = 'sk-very-secret'\n"
        "    def size(self) -> int:\n        return len(self.caption)\n"
    )
    answer = importlib.import_module(name).Answer

    @leman.udf
    def caption(x: str) -> int:
        return answer(caption=x).size()  # type: ignore[no-any-return]

    return caption


def test_the_fields_of_a_class_are_in_it_as_they_are_declared(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    before, after = (model(tmp_path, f"caption: str = pydantic.Field(min_length={n})") for n in (3, 4))
    assert before.version != after.version
    removed, added = (
        set(f.source.splitlines()) - set(g.source.splitlines()) for f, g in ((before, after), (after, before))
    )
    assert removed == {"    caption: str = pydantic.Field(min_length=3)"}
    assert added == {"    caption: str = pydantic.Field(min_length=4)"}
    assert "class Answer(pydantic.BaseModel):\n    model_config = pydantic.ConfigDict(strict=True)" in after.source
    assert "def size(self) -> int:" in after.source
    assert "secret" not in after.source
    assert "    key: str = <str " in after.source


def test_fields_of_a_class_in_a_notebook_are_in_it(monkeypatch) -> None:
    cell = "import dataclasses\n@dataclasses.dataclass\nclass Vec:\n    scale: float = 2.5\n"
    cell += "def made(): return Vec().scale\n"
    name = "/tmp/ipykernel_1/1234.py"
    monkeypatch.setitem(linecache.cache, name, (len(cell), None, cell.splitlines(keepends=True), name))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setattr(sys.modules["__main__"], "__file__", None, raising=False)
    exec(compile(cell, name, "exec"), namespace)
    text = source_text(namespace["made"])
    assert "@dataclasses.dataclass\nclass Vec:\n    scale: float = 2.5" in text


def test_of_a_version_that_was_given_only_the_function_itself_is_looked_at() -> None:
    assert pinned.source == '@leman.udf(version="7")\ndef pinned(x: int) -> int:\n    return helper(x)'


def test_where_there_is_no_source_there_is_no_text() -> None:
    namespace: dict[str, object] = {"leman": leman}
    exec("@leman.udf(version='1')\ndef typed(x: int) -> int:\n    return x", namespace)
    assert namespace["typed"].source == ""  # type: ignore[attr-defined]


@contextlib.contextmanager
def at_each_collection(called: Callable[[], object]) -> Iterator[None]:
    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            called()

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(50)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*thresholds)


LARGE = "\n".join(f"a{n} = [{n}, x + {n}]" for n in range(2000))


def test_what_is_parsed_in_the_midst_of_parsing_does_no_harm() -> None:
    """As a finalizer does that prints a traceback; older interpreters end the outer one with a SystemError then."""
    parsed: list[ast.Module] = []

    def deep(frames: int) -> ast.Module:
        return deep(frames - 1) if frames else ast.parse("x + 1")

    with at_each_collection(lambda: parsed or parsed.append(deep(30))):
        found = source_code._parse("somewhere.py", LARGE)
    assert found is not None
    assert parsed


def test_threads_may_register_functions_at_once() -> None:
    """Two parses at once end with a SystemError in older interpreters: one waits for the other."""
    others: list[threading.Thread] = []
    waited: list[bool] = []

    def another() -> None:
        if len(others) < 3 and threading.current_thread() is threading.main_thread():
            others.append(threading.Thread(target=source_code._tree, args=["x + 1"]))
            others[-1].start()
            others[-1].join(0.1)
            waited.append(others[-1].is_alive())

    with at_each_collection(another):
        source_code._tree(LARGE)
    for thread in others:
        thread.join()
    assert waited[1:] == [True, True], "the first may have come before the parse began"
