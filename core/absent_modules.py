"""What a process can leave out to be up sooner."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: pyarrow imports pandas if it is installed (0.9 s), structlog imports rich for its tracebacks (0.1 s).
HEAVY = ("pandas", "rich")


class _Absent:
    """A module finder for which some modules do not exist."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)
        return None


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Let optional imports of these modules find nothing while the context is open.

    For services that never use them.
    """
    finder = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
