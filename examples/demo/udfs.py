"""The functions of the demo: a batch function, a row function and a class for the table; one for the view."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
import warnings

import pyarrow as pa

import leman
from examples.demo.text_model import DIMENSIONS, TextModel
from leman.error_handling import ErrorHandlingConfig, Skip

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_HEADS, _OPEN, _CLOSING = {"def", "async", "class"}, set("([{"), set(")]}")
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
)


@leman.udf(data_type=pa.int32())
def n_tokens(source: pa.Array) -> pa.Array:
    """Tokens of Python, comments and layout left out; where a text breaks off, those before."""
    return pa.array([_count_tokens(text) for text in source.to_pylist()], pa.int32())


def _count_tokens(text: str) -> int:
    count = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            count += token.type not in _LAYOUT
    except (tokenize.TokenError, SyntaxError):
        pass
    return count


@leman.udf(data_type=pa.int32(), error_handling=ErrorHandlingConfig(on_error=[Skip([SyntaxError])]))
def complexity(source: str) -> int:
    """Cyclomatic complexity: one, and one more for each way on that the code may take.

    The text is taken out of its file, so that not all of it is Python on its own: such rows are errors.
    """
    paths = 1
    with warnings.catch_warnings(action="ignore"):  # the author's, not ours
        tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, _BRANCHES):
            paths += 1 + len(getattr(node, "ifs", ()))
        elif isinstance(node, ast.BoolOp):
            paths += len(node.values) - 1
    return paths


@leman.udf(name="embedding", data_type=pa.list_(pa.float32(), DIMENSIONS))
class Embedding:
    """Unit vectors in which definitions that are about the same thing lie close."""

    def __init__(self) -> None:
        self._model = TextModel()

    def __call__(self, qualified_name: pa.Array, docstring: pa.Array, source: pa.Array) -> pa.Array:
        """A vector for each row."""
        texts = (column.to_pylist() for column in (qualified_name, docstring, source))
        vectors = self._model.definitions(*texts)
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS)


@leman.udf(data_type=pa.string())
def signature(source: str) -> str:
    """The head of a definition in one line, such as `def parse(text: str) -> date`, however it is laid out."""
    words: list[str] = []
    end = (0, 0)
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT or not (words or token.string in _HEADS):
            continue  # decorators stand before
        depth += (token.string in _OPEN) - (token.string in _CLOSING)
        if token.string == ":" and not depth:
            break
        apart = bool(words) and token.start != end
        if token.string in _CLOSING and apart and words[-1] == ",":
            words.pop()
        elif apart and token.string not in _CLOSING and words[-1] not in _OPEN:
            words.append(" ")
        words.append(token.string)
        end = token.end
    return "".join(words)
