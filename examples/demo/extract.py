"""Python source on this machine as rows: one for each function, method and class.

Standard library only: worker processes import this module and nothing else.
"""

from __future__ import annotations

import ast
import gc
import io
import os
import signal
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

_LEFT_OUT = {"test", "tests", "testing", "idle_test", "lib2to3", "site-packages", "dist-packages", "__pycache__"}
_CHUNK_BYTES = 1 << 20
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Row(NamedTuple):
    """One definition. `source` is its text as it stands in the file, decorators and indentation included."""

    module: str
    qualified_name: str
    kind: str
    docstring: str | None
    source: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Found:
    """What files hold, in the order of the files. `unreadable` counts files that this Python cannot parse."""

    rows: list[Row]
    files: int
    unreadable: int


def source_roots() -> list[Path]:
    """The folders of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    return [Path(path) for path in dict.fromkeys(paths[key] for key in ("stdlib", "purelib", "platlib"))]


def extract(limit: int, roots: Sequence[Path] | None = None, processes: int | None = None) -> Found:
    """The first `limit` definitions below the roots, in the same order every time.

    Tests are left out. Files are parsed in `processes` processes (None: one for each core).
    """
    chunks = list(_chunks(source_roots() if roots is None else roots))
    workers = max(1, min(processes or os.cpu_count() or 1, len(chunks)))
    with _new_pool(workers) as pool:
        return _collect(pool.imap(read_files, chunks), limit)


def _new_pool(processes: int) -> Pool:
    """Processes that leave Ctrl-C to this one. Call it from the main thread."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which they inherit
    try:
        # Syntax trees have no cycles: collecting garbage takes longer than parsing.
        return get_context("spawn").Pool(processes, initializer=gc.disable)
    finally:
        signal.signal(signal.SIGINT, before)


def _collect(parts: Iterable[Found], limit: int) -> Found:
    rows: list[Row] = []
    files = unreadable = 0
    for part in parts:
        rows += part.rows
        files += part.files
        unreadable += part.unreadable
        if len(rows) >= limit:
            break
    return Found(rows[:limit], files, unreadable)


def read_files(files: Sequence[tuple[Path, Path]]) -> Found:
    """All definitions in files, each given with the root that its module name counts from."""
    rows: list[Row] = []
    unreadable = 0
    for root, path in files:
        try:
            rows += definitions(path.read_bytes(), path.relative_to(root))
        except (SyntaxError, ValueError, RecursionError):  # another Python's syntax, an odd encoding
            unreadable += 1
    return Found(rows, len(files), unreadable)


def definitions(content: bytes, path: Path) -> list[Row]:
    """The definitions in one file, outer ones first. Raises what `ast.parse` raises."""
    with warnings.catch_warnings(action="ignore"):  # other people's escape sequences
        tree = ast.parse(content)
    text = content.decode(_encoding(content)).replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    parts = path.with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return [
        Row(module, name, kind, ast.get_docstring(node), _source(node, lines), path.as_posix(), node.lineno)
        for name, kind, node in _walk(tree, prefix="", in_class=False)
    ]


def _walk(parent: ast.AST, prefix: str, *, in_class: bool) -> Iterator[tuple[str, str, Definition]]:
    """Qualified name, kind and node of each definition below a node. Expressions hold none."""
    for block in _BLOCKS:
        for node in getattr(parent, block, ()):
            if isinstance(node, ast.ClassDef):
                name = prefix + node.name
                yield name, "class", node
                yield from _walk(node, f"{name}.", in_class=True)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + node.name
                yield name, "method" if in_class else "function", node
                yield from _walk(node, f"{name}.<locals>.", in_class=False)
            else:
                yield from _walk(node, prefix, in_class=in_class)


def _source(node: Definition, lines: list[str]) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(lines[first - 1 : node.end_lineno]) + "\n"


def _encoding(content: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(content).readline)[0]


def _chunks(roots: Sequence[Path]) -> Iterator[list[tuple[Path, Path]]]:
    """Files in order, in groups of about a megabyte."""
    chunk: list[tuple[Path, Path]] = []
    size = 0
    for root in roots:
        for path in _files(root):
            chunk.append((root, path))
            size += path.stat().st_size
            if size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))
