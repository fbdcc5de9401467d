"""What the standard library makes of a user's own functions and types, taken apart so that these travel by value.

pickle sends such objects by their name, which workers do not have, or not at all.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from leman._modules import is_installed
from leman.errors import UdfDefinitionError

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


def proxied(value: Any) -> tuple[Any, ...] | None:
    """What a proxy of a function, or a curried one, is made of: how it is made, and from what; None for anything else.

    Such an object says that it is a function, and pickling that would lose what it does. Raises UdfDefinitionError for
    one that this cannot take apart.
    """
    kind: Any = type(value)
    if kind.__name__ == "curry" and kind.__module__.partition(".")[0] in ("toolz", "cytoolz"):
        return kind, value.func, value.args, value.keywords
    if kind.__name__ == "ValidateCallWrapper" and kind.__module__.partition(".")[0] == "pydantic":
        return kind, value.function, (value.config_wrapper.config_dict, value.validate_return, None), {}
    if issubclass(kind, FunctionType) or not _says_function(value):
        return None
    wrapt = sys.modules.get("wrapt")
    name = kind.__name__
    if wrapt is not None and name == "FunctionWrapper" and getattr(wrapt, name, None) is kind:
        return proxy, name, value.__wrapped__, value._self_wrapper, value._self_enabled
    raise UdfDefinitionError(
        f"{getattr(value, '__qualname__', kind.__qualname__)}, a value of type {kind.__module__}.{kind.__qualname__},"
        " stands in for a function, and workers would get that function without it. Call the function inside a def of"
        " your own that does the same."
    )


def _says_function(value: Any) -> bool:
    try:
        return isinstance(value, FunctionType)
    except Exception:  # noqa: BLE001 - a lazy object may fail in any way when it is looked at
        return False


def reduced(value: Any, registered: Any, protocol: int) -> Any:
    """What pickle makes of an object. A class of the user's own keeps its attributes where its base class, such as
    numpy's array, leaves them out."""
    way = registered.get(type(value))
    parts = way(value) if way is not None else value.__reduce_ex__(protocol)
    own = getattr(value, "__dict__", None)
    if not own or type(own) is not dict or not isinstance(parts, tuple) or is_installed(type(value).__module__):
        return parts
    written = next(c for c in type(value).__mro__ if "__reduce__" in vars(c) or "__reduce_ex__" in vars(c))
    if written is object or not is_installed(written.__module__):
        return parts
    state = parts[2] if len(parts) > 2 else None
    if (
        state is own
        or (isinstance(state, dict) and own.keys() <= state.keys())
        or (isinstance(state, tuple) and any(item is own or item == own for item in state if isinstance(item, dict)))
    ):
        return parts
    rest = (*parts[3:5], None, None)[:2]
    return (*parts[:2], (state, dict(own)), *rest, set_state)


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


def proxy(name: str, function: Callable[..., Any], wrapper: Any, enabled: Any) -> Any:
    """A function in a proxy of wrapt."""
    return getattr(importlib.import_module("wrapt"), name)(function, wrapper, enabled)


def set_state(value: Any, states: tuple[Any, dict[str, Any]]) -> None:
    """Give an object the state that its base class pickles, and its own attributes."""
    state, own = states
    if state is not None:
        value.__setstate__(state)
    value.__dict__.update(own)


BUILDERS = (cached, add_implementations, proxy, set_state)


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
