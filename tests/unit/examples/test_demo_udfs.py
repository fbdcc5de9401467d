"""The demo's functions: their values, their errors, and that workers can load them without the demo's files."""

import subprocess
import sys

import pyarrow as pa
import pytest

from examples.demo.text_model import DIMENSIONS
from examples.demo.udfs import Embedding, complexity, n_tokens, signature

METHOD_WITH_TEXT_AT_THE_MARGIN = '    def usage(self):\n        return """\nusage: it\n"""\n'


def test_tokens_are_counted_without_comments_and_layout():
    sources = pa.array(["def f(a):\n    # why\n    return a + 1\n", "    def f(self): pass\n", ""])

    assert n_tokens(sources).to_pylist() == [10, 7, 0]


@pytest.mark.parametrize("text", ["x = (1,\n", "if x:\n        a\n    b\n", 'x = """'])
def test_text_that_breaks_off_has_the_tokens_before(text):
    assert n_tokens(pa.array([text]))[0].as_py() >= 2


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("pass", 1),
        ("if a: pass\n    elif b: pass\n    else: pass", 3),
        ("for x in y: pass\n    while a: pass", 3),
        ("try: pass\n    except A: pass\n    except B: pass\n    finally: pass", 3),
        ("return a and b and c", 3),
        ("return a if b else c", 2),
        ("return [x for x in y if x if a for z in x]", 5),
        ("match a:\n        case 1: pass\n        case _: pass", 3),
        ("def g():\n        if a: pass", 2),
    ],
)
def test_complexity_counts_the_ways_through(body, paths):
    assert complexity(f"def f():\n    {body}\n") == paths


def test_a_method_is_read_without_its_indentation():
    assert complexity("    @property\n    def f(self):\n        return 1 if self else 2\n") == 2


def test_a_warning_about_the_text_is_no_error():
    assert complexity("def f(): return '\\d'\n") == 1


def test_a_row_that_is_no_python_on_its_own_is_an_error_and_skipped():
    with pytest.raises(SyntaxError):
        complexity(METHOD_WITH_TEXT_AT_THE_MARGIN)

    (rule,) = complexity.describe().error_policy.rules
    assert list(rule.exception_types) == ["SyntaxError"]


@pytest.mark.parametrize(
    ("source", "head"),
    [
        ("def f(a): return 1\n", "def f(a)"),
        (
            "def f(\n    a: int,\n    b=(1, 2),  # why\n) -> dict[str, int]:\n  pass\n",
            "def f(a: int, b=(1, 2)) -> dict[str, int]",
        ),
        ("    @x.setter\n    async def g(self, v=lambda: 1):\n        pass\n", "async def g(self, v=lambda: 1)"),
        ("class A(B[int]):\n    x: int\n", "class A(B[int])"),
        ("class A:\n    x = 1\n", "class A"),
        (METHOD_WITH_TEXT_AT_THE_MARGIN, "def usage(self)"),
    ],
)
def test_a_signature_is_one_line(source, head):
    assert signature(source) == head


def test_an_embedding_has_a_vector_for_each_row():
    names, docs = pa.array(["f", "g"]), pa.array(["Adds.", None])

    vectors = Embedding()(names, docs, pa.array(["def f(): pass", ""]))

    assert vectors.type == pa.list_(pa.float32(), DIMENSIONS)
    assert len(vectors) == 2


CALLS = {
    "n_tokens": "f(pa.array(['x = 1'])).to_pylist() == [3]",
    "complexity": "f('if a: pass') == 2",
    "embedding": f"len(f()(pa.array(['f']), pa.array([None]), pa.array(['']))[0]) == {DIMENSIONS}",
}


@pytest.mark.parametrize("udf", [n_tokens, complexity, Embedding], ids=lambda udf: udf.name)
def test_workers_need_none_of_the_demos_files(udf):
    code = f"""
import sys
sys.modules["examples"] = None  # importing it raises
import cloudpickle, pyarrow as pa
f = cloudpickle.loads(sys.stdin.buffer.read())
assert {CALLS[udf.name]}
"""
    _python(code, udf.bundle()[1])


def test_versions_are_the_same_in_every_session():
    code = "from examples.demo.udfs import *; print(n_tokens.version, complexity.version, Embedding.version)"

    assert _python(code).split() == [n_tokens.version, complexity.version, Embedding.version]


def _python(code: str, given: bytes = b"") -> str:
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
