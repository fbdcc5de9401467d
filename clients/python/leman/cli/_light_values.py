"""Values of arguments and options as typer takes them, without what it imports for that.

typer has pydantic look at each value, which takes longer to import than the manifests of some tables to read. A text
for a text, a flag for a flag and a whole number for one are what they should be; all else is left to pydantic.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, get_args, get_origin

_MOST_DIGITS = 18
_LEFT = object()


class _Light:
    """What typer asks for the value of one parameter; `make` returns its own."""

    def __init__(self, descriptor: Any, make: Callable[[Any], Any]) -> None:
        self._kind, self._rules = descriptor.annotation, descriptor.parameter_info
        self._descriptor, self._make = descriptor, make

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command is to have it. Raises as typer does."""
        found = self._taken(value, many=param.multiple or param.nargs == -1)
        return found if found is not _LEFT else self._make(self._descriptor).coerce(value, param=param, ctx=ctx)

    def _taken(self, value: Any, *, many: bool) -> Any:
        if value is None:
            return () if many else None
        if get_origin(self._kind) is not list:
            return _LEFT if many else self._one(value, self._kind)
        if not many or not isinstance(value, list | tuple):
            return _LEFT
        taken = [self._one(each, *get_args(self._kind)) for each in value]
        return _LEFT if any(each is _LEFT for each in taken) else taken

    def _one(self, value: Any, kind: Any) -> Any:
        if kind is int:
            return self._number(value)
        return value if kind in (str, bool) and type(value) is kind else _LEFT

    def _number(self, value: Any) -> Any:
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
            value = int(value)
        least, most = self._rules.min, self._rules.max
        is_fine = type(value) is int and (least is None or value >= least) and (most is None or value <= most)
        return value if is_fine else _LEFT


def use() -> None:
    """Have typer take such values as they are. A release that is made otherwise goes on as it does."""
    with contextlib.suppress(ImportError, AttributeError):
        core: Any = importlib.import_module("typer.core")
        whole = core.build_runtime_param

        def build(descriptor: Any) -> Any:
            return whole(descriptor) if descriptor.parameter_info.parser is not None else _Light(descriptor, whole)

        core.build_runtime_param = build
