"""What the standard library makes of a user's own functions and types, taken apart so that these travel by value.

pickle sends such objects by their name, which workers do not have, or not at all.
"""

from __future__ import annotations

import functools
import pickle
import sys
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from leman._modules import is_installed

_CACHE = type(functools.cache(len))
_DISPATCH = cast(FunctionType, functools.singledispatch(len)).__code__
_ALSO_MADE = {"cache_parameters", "__wrapped__", *functools.WRAPPER_ASSIGNMENTS}


def cached_function(value: Any) -> Any | None:
    """The function within a cache that is sent by value; None for anything else."""
    return value.__wrapped__ if type(value) is _CACHE and not _has_name(value) else None


def implementations(value: Any) -> dict[type, Callable[..., Any]] | None:
    """What a dispatcher of `functools.singledispatch` that is sent by value chooses from; None for anything else."""
    made = isinstance(value, FunctionType) and value.__code__ is _DISPATCH
    return dict(value.registry) if made and not _has_name(value) else None


def taken_apart(value: Any) -> tuple[Any, ...] | None:
    """How a worker makes such an object anew, as `object.__reduce__` has it; None where pickle knows that itself."""
    way = _WAYS.get(type(value))
    found = way(value) if way is not None else None
    return None if found is None or _has_name(value) else found


def home(value: Any, name: str) -> str:
    """The module by which pickle sends an object, where that is one that workers do not have; else an empty text."""
    module = pickle.whichmodule(value, name)  # type: ignore[attr-defined]
    return "" if is_installed(module) else module


# These two travel by value themselves: workers may have another release of the SDK.


def cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001
    """A function with a cache, empty at first."""
    return functools.lru_cache(maxsize, typed)(function)


def add_implementations(dispatcher: Any, known: dict[type, Callable[..., Any]]) -> None:
    """Give a dispatcher what it chooses from."""
    for kind, function in known.items():
        dispatcher.register(kind, function)


BUILDERS = (cached, add_implementations)


def _cache(value: Any) -> tuple[Any, ...]:
    settings = value.cache_parameters()
    own = {name: item for name, item in vars(value).items() if name not in _ALSO_MADE}
    return cached, (value.__wrapped__, settings["maxsize"], settings["typed"]), own


def _dispatcher(value: FunctionType) -> tuple[Any, ...] | None:
    known = implementations(value)
    if known is None:
        return None
    return functools.singledispatch, (known.pop(object),), known, None, None, add_implementations


_WAYS: dict[type, Callable[[Any], tuple[Any, ...] | None]] = {
    _CACHE: _cache,
    FunctionType: _dispatcher,
    functools.cached_property: lambda v: (type(v), (v.func,), {"attrname": v.attrname}),  # up to 3.11 it holds a lock
    typing.NewType: lambda v: (type(v), (v.__name__, v.__supertype__), dict(vars(v))),
    typing.ParamSpec: lambda v: (type(v), (v.__name__,)),
    typing.TypeVarTuple: lambda v: (type(v), (v.__name__,)),
}


def _has_name(value: Any) -> bool:
    """Whether workers find the very object by its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value
