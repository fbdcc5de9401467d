"""What a process can leave out to be up sooner."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

#: pyarrow imports pandas if it is installed (0.9 s), structlog imports rich for its tracebacks (0.1 s), redis imports
#: OpenTelemetry's SDK for measures of its own (0.3 s), which services import later where they are asked for measures.
HEAVY = ("pandas", "rich", "opentelemetry")


class _Refusing(Loader):
    """A loader of a module that is there, and is not to be imported."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError(f"{spec.name} is left out of this process", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Never called."""
        raise AssertionError(module)


class _Absent:
    """A finder that finds some modules, but lets none be imported.

    Anyone who asks whether they are installed, and remembers it, hears the truth: lance, for example, takes no data
    frame where it has heard that there is no pandas.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names or PathFinder.find_spec(name, path) is None:
            return None
        return ModuleSpec(name, _Refusing(), is_package=True)


@contextlib.contextmanager
def blocked_imports(*names: str) -> Iterator[None]:
    """Let optional imports of these modules fail while the context is open.

    For services that never use them.
    """
    finder = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
