"""The text of a function and of what it uses, for people who want to see what changed between two versions."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import textwrap
from types import FunctionType
from typing import Any

from leman._source import FunctionNode, function_node
from leman.errors import VersionRequired

#: The services take a source of so many bytes.
MAX_BYTES = 64 << 10
_SHOWN = (bool, int, float, complex, type(None))
_NAMED = (str, bytes, list, tuple, dict, set, frozenset)


class SourceText:
    """Functions and values in the order in which they are met; each is told once."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], str] = {}
        self._values: dict[str, str] = {}

    def function(self, function: FunctionType, node: FunctionNode | None) -> None:
        """Take a function whose syntax tree is known to be what was loaded; None: it has no source to show."""
        if node is None:
            return
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        place = (function.__code__.co_filename, first)
        if place not in self._functions:
            lines = linecache.getlines(place[0], function.__globals__)
            self._functions[place] = textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip()

    def value(self, name: str, value: Any) -> None:
        """Take a constant that a function reads; values of other types are left out."""
        if type(value) in (*_SHOWN, *_NAMED):
            self._values.setdefault(name, constant(value))

    def __str__(self) -> str:
        values = [f"{name} = {value}" for name, value in sorted(self._values.items())]
        text = "\n\n".join(["\n".join(values)] * bool(values) + list(self._functions.values()))
        return text.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")


def constant(value: Any) -> str:
    """A number in full; of texts and containers, which may hold what is secret, only a mark that tells changes."""
    if type(value) in _SHOWN:
        return repr(value)
    return f"<{type(value).__name__} {_mark(value)}>"


def _mark(value: Any) -> str:
    """Four hex digits: enough to see that something changed, too few to try out what it is."""
    held = value.copy() if type(value) is set else value  # other threads may write to it
    try:
        parts = sorted(map(_mark, held)) if isinstance(held, set | frozenset) else repr(held)
    except Exception:  # noqa: BLE001 - what it holds may be of anybody's classes
        parts = type(held).__name__
    return hashlib.sha256(str(parts).encode(errors="replace")).hexdigest()[:4]


def own_text(target: Any) -> str:
    """The text of a function, or of the methods of a class, without what they use; empty where it cannot be read."""
    found = SourceText()
    for function in vars(target).values() if isinstance(target, type) else [target]:
        if isinstance(function, FunctionType):
            with contextlib.suppress(VersionRequired):
                found.function(function, function_node(function))
    return str(found)
