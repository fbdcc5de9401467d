"""The bundle of a function: its code and all of the user's own code that it uses, pickled by value."""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.util
import inspect
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import cloudpickle

from leman import _by_value
from leman._modules import is_installed, is_installed_code, loaded_user_modules
from leman.errors import UdfDefinitionError

#: What to do about a value that cannot be sent.
BUILD_IT_THERE = "Build what it holds inside the function, or in __init__ of a class."
#: What Python says of a dictionary, a module's for one, that another thread has written to while it was pickled: it is
#: pickled anew then, so often at the most.
_CHANGED, _TRIES = ("changed size during iteration", "keys changed during iteration"), 10
_PLACE_OF_FILE = 10  # among the arguments of CodeType, since Python 3.11


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pickled code. `sha256` says whether it is whole; it is no identity: pickles of equal code differ."""

    data: bytes
    sha256: str


def make_bundle(target: Any) -> Bundle:
    """Pickles a callable so that workers need none of the user's modules.

    Raises UdfDefinitionError, saying what cannot be pickled, or which import workers could not follow.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            data = _pickled(target)
            break
        except UdfDefinitionError:
            raise
        except Exception as error:  # noqa: BLE001 - objects may refuse to be pickled in any way they like
            changed = isinstance(error, RuntimeError) and str(error).endswith(_CHANGED)
            if not tries_left or not changed:
                raise UdfDefinitionError(
                    f"The function cannot be sent to workers: {type(error).__name__}: {error}. {BUILD_IT_THERE}"
                ) from None
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _pickled(target: Any) -> bytes:
    buffer = io.BytesIO()
    with _user_modules_by_value():
        _Pickler(buffer).dump(target)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Looks at each object on its way into the bundle: none goes by a name that workers do not have."""

    def reducer_override(self, obj: Any) -> Any:
        parts = _by_value.proxied(obj)
        if parts is not None:
            return _remade(*parts)
        apart = _by_value.taken_apart(obj)
        if apart is not None:
            return apart
        if isinstance(obj, FunctionType):
            if obj in _by_value.BUILDERS:
                return self._dynamic_function_reduce(obj)
            _check_imports(obj)
            _add_names_of_class_bodies(obj.__code__)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple):
            return _by_value.class_apart(obj, reduced)
        if reduced is NotImplemented and not isinstance(obj, FunctionType | type):
            reduced = self._reduced(obj)
        return reduced

    def _reduced(self, obj: Any) -> Any:
        """What pickle would do by itself. Raises UdfDefinitionError for a name in a module of the user's own."""
        reduced = _by_value.reduced(obj, self.dispatch_table, self.proto)
        if isinstance(obj, CodeType):
            return _with_file(obj, reduced)
        module = _by_value.home(obj, reduced) if isinstance(reduced, str) else ""
        if module:
            raise UdfDefinitionError(by_name_only(type(obj), f"{module}.{reduced}"))
        return reduced


def _remade(make: Callable[..., Any], *parts: Any) -> tuple[Any, ...]:
    if make is _by_value.proxy:
        return make, parts
    function, args, keywords = parts
    return functools.partial(make, function, *args, **keywords), ()


def by_name_only(kind: type, name: str) -> str:
    """What is said of an object that cannot be sent."""
    return (
        f"{name}, a value of type {kind.__qualname__}, is sent by its name only, and workers do not have that module."
        f" {BUILD_IT_THERE}"
    )


def _with_file(code: CodeType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Code is made anew with its own file, which tracebacks tell: cloudpickle leaves it out from 3.1.3 on."""
    make, arguments = reduced
    at = _PLACE_OF_FILE
    return make, (*arguments[:at], code.co_filename, *arguments[at + 1 :])


def _check_imports(function: FunctionType) -> None:
    if is_installed_code(function.__globals__):
        return
    for name in _imports(function.__code__, function.__globals__.get("__package__") or ""):
        if not is_installed(name) and importlib.util.find_spec(name.partition(".")[0]) is not None:
            raise UdfDefinitionError(
                f"{function.__qualname__}() imports {name} when it is called, and workers do not have that"
                " module: import it at the top of the file instead, or install it as a package."
            )


def _add_names_of_class_bodies(code: CodeType) -> None:
    """Have cloudpickle send globals that are read in the body of a class within a function, too."""
    known = cloudpickle.cloudpickle._extract_code_globals(code)
    for body in _class_bodies(code):
        for step in dis.get_instructions(body):
            if step.opname == "LOAD_NAME":
                known.setdefault(step.argval)


def _class_bodies(code: CodeType) -> Iterator[CodeType]:
    """Code within a function that is run in a namespace of its own."""
    for item in code.co_consts:
        if isinstance(item, CodeType):
            if not item.co_flags & inspect.CO_OPTIMIZED:
                yield item
            yield from _class_bodies(item)


#: cloudpickle's registry is one for the whole process: of two threads, one would take out what the other needs.
_registry = threading.RLock()


@contextmanager
def _user_modules_by_value() -> Iterator[None]:
    with _registry:
        already = cloudpickle.list_registry_pickle_by_value()
        modules = [module for module in loaded_user_modules() if module.__name__ not in already]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def _imports(code: CodeType, package: str) -> Iterator[str]:
    """Names of the modules that import statements inside a function ask for."""
    steps = list(dis.get_instructions(code))
    for index, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level = steps[index - 2].argval
            name = str(step.argval)
            yield importlib.util.resolve_name("." * level + name, package) if level else name
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _imports(item, package)
