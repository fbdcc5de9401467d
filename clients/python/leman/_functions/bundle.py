"""The bundle of a function: its code and the user's own code that it uses, pickled by value.

Pickle sends some objects that the standard library makes of a user's functions and types by a name that workers do not
have, or not at all. This module takes them apart. Pydantic, SQLModel, msgspec and beartype store derived data in a
class: schemas with addresses of objects, compiled validators, generated code. All of that differs between processes. A
version therefore digests what the user wrote instead: fields, settings, and which method checks which field.
"""

from __future__ import annotations

import decimal
import dis
import enum
import functools
import hashlib
import importlib
import importlib.util
import inspect
import io
import pickle
import struct
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

import cloudpickle

from leman._functions.source_code import is_installed, is_installed_code, loaded_user_modules
from leman.errors import UdfDefinitionError

#: Libraries whose wrappers store results of earlier calls in a dictionary.
CACHES = frozenset({"cachetools", "toolz", "cytoolz"})

#: Attributes in which objects of a class store results of calls, or addresses. The objects also work without them.
_LEFT_BY_CALLS = {
    ("numpy", "vectorize"): ("_ufunc",),
    ("sklearn", "CountVectorizer"): ("_stop_words_id",),
    ("sklearn", "TfidfVectorizer"): ("_stop_words_id",),
}
_WITH_STATE = 3  # items of a reduced object that has a state

_DERIVED = ("__pydantic_", "_sa_", "__sqlmodel_")
_DERIVED_NAMES = {"__signature__", "__table__", "__mapper__", "__class_vars__", "__hash__", "__fields__"}


def described(value: type) -> list[Any] | None:
    """Return the fields and settings of a class of pydantic, SQLModel or msgspec, or None for other classes."""
    kind = _base(value, "pydantic", "BaseModel")
    if kind is not None:
        return _pydantic(value)
    if "__is_pydantic_dataclass__" in vars(value):
        return [*_pydantic(value), vars(value).get("__pydantic_config__")]
    kind = _base(value, "msgspec", "Struct")
    return None if kind is None else _msgspec(value)


def is_derived(name: str, item: Any) -> bool:
    """Return whether the library derived this attribute of a class from what `described` returns."""
    if name.startswith(_DERIVED) or name in _DERIVED_NAMES or name == "__is_pydantic_dataclass__":
        return True
    return type(item).__module__.partition(".")[0] == "sqlalchemy"


def described_object(value: Any) -> Any | None:
    """Return the arguments of a library's object that stores compiled validators, or None for other objects."""
    home, name = type(value).__module__.partition(".")[0], type(value).__name__
    made: list[Any] | None = None
    match home, name:
        case "pydantic", "TypeAdapter":
            made = [value._type, value._config]
        case "pydantic", "ValidateCallWrapper":
            made = [value.function, value.config_wrapper.config_dict, value.validate_return]
            made.append(list(getattr(value.function, "__annotations__", {}).items()))
        case "msgspec", "Factory":
            made = [value.factory]
        case "cachetools", _ if hasattr(value, "maxsize"):  # cached results are not part of the code
            made = [value.maxsize, getattr(value, "ttl", None)]
        case "jsonschema", _ if hasattr(value, "iter_errors"):  # it also has an index whose order depends on hash seeds
            made = [value.schema, value.format_checker]
        case "loguru", "Logger":  # its destinations are not part of the function
            made = list(value._options)
        case "typing", "ForwardRef":
            made = [value.__forward_arg__]
        case "typing", "TypeVar":
            made = [value.__name__, value.__bound__, value.__constraints__]
            made += [value.__covariant__, value.__contravariant__]
    return made


def before_calls(value: Any, parts: Any) -> Any:
    """Return the pickled form of an object without state that calls left in it, such as caches."""
    if type(value) is decimal.Context:  # drop its flags, which earlier operations have set
        return parts[0], (*parts[1][:6], [], *parts[1][7:])
    if type(value).__name__ == "ModelPrivateAttr" and type(value).__module__.partition(".")[0] == "pydantic":
        return type(value)(value.default, default_factory=value.default_factory).__reduce_ex__(4)
    left = _LEFT_BY_CALLS.get((type(value).__module__.partition(".")[0], type(value).__name__))
    if left is None or not isinstance(parts, tuple) or len(parts) < _WITH_STATE or type(parts[2]) is not dict:
        return parts
    return (*parts[:2], {**parts[2], **{name: {} for name in left if name in parts[2]}}, *parts[3:])


def compiler_options(value: Any) -> dict[str, Any]:
    """Return numba's options of a function that change its results, or {} for other objects."""
    if type(value).__module__.partition(".")[0] != "numba":
        return {}
    options = getattr(value, "targetoptions", {})
    return {name: options[name] for name in ("error_model", "fastmath", "parallel") if options.get(name)}


def made_from_seeds(name: str, item: Any) -> bool:
    """Return whether attrs generated a method with a number in it that differs between processes."""
    code = getattr(item, "__code__", None)
    return name == "__hash__" and code is not None and code.co_filename.startswith("<attrs generated")


def checked_function(value: FunctionType) -> tuple[FunctionType, list[Any]] | None:
    """Return the function inside one that beartype generated, with its settings, or None for other functions."""
    if not value.__code__.co_filename.startswith("<@beartype("):
        return None
    inner = value.__dict__.get("__wrapped__")
    if not isinstance(inner, FunctionType):
        return None
    return inner, [repr((value.__kwdefaults__ or {}).get("__beartype_conf"))]


def _base(value: type, library: str, name: str) -> type | None:
    module = sys.modules.get(library)
    base = None if module is None else vars(module).get(name) or getattr(module, name, None)
    return base if isinstance(base, type) and issubclass(value, base) else None


def _pydantic(value: Any) -> list[Any]:
    own = vars(value)
    fields = []
    for name, field in own.get("__pydantic_fields__", {}).items():
        settings = {key: getattr(field, key, None) for key in type(field).__slots__ if not key.startswith("_")}
        fields.append([name, sorted(settings.items())])
    checks = []
    found = own.get("__pydantic_decorators__")
    for group in sorted(getattr(found, "__dataclass_fields__", {})):
        for name, made in getattr(found, group).items():
            info = made.info
            keys = getattr(type(info), "__dataclass_fields__", {})
            checks.append(
                [group, name, [(key, getattr(info, key)) for key in sorted(keys) if key != "wrapped_property"]]
            )
    return [fields, checks]


def _msgspec(value: Any) -> list[Any]:
    config = value.__struct_config__
    settings = [(name, getattr(config, name)) for name in dir(config) if not name.startswith("_")]
    return [value.__struct_fields__, value.__struct_encode_fields__, list(value.__struct_defaults__), settings]


_CACHE = type(functools.cache(len))
_DISPATCH = cast(FunctionType, functools.singledispatch(len)).__code__
_OF_TYPED_DICT = {
    "__annotations__", "__closed__", "__doc__", "__extra_items__", "__module__", "__mutable_keys__",
    "__optional_keys__", "__orig_bases__", "__parameters__", "__qualname__", "__readonly_keys__", "__required_keys__",
    "__total__",
}  # fmt: skip
_WITHOUT_STATE = 2  # items of a reduced object without a state
_MAKES = ("__new_member__", "__init__")
_ALSO_MADE = {"cache_parameters", "__wrapped__", *functools.WRAPPER_ASSIGNMENTS}


def cached_function(value: Any) -> Any | None:
    """Return the function in a cache that is sent by value, or None for anything else."""
    return value.__wrapped__ if type(value) is _CACHE and not has_name(value) else None


def implementations(value: Any) -> dict[type, Callable[..., Any]] | None:
    """Return the functions of a `functools.singledispatch` that is sent by value, or None for anything else."""
    made = isinstance(value, FunctionType) and value.__code__ is _DISPATCH
    return dict(value.registry) if made and not has_name(value) else None


def taken_apart(value: Any) -> tuple[Any, ...] | None:
    """Return how a worker recreates such an object, as `object.__reduce__` does, or None if pickle can send it."""
    way = _WAYS.get(type(value)) or (_derived if issubclass(type(value), tuple(_DESCRIPTORS)) else None)
    if way is None and type(value).__name__ == "Meta" and type(value).__module__ == "msgspec":
        way = _struct_meta
    found = way(value) if way is not None else None
    return None if found is None or has_name(value) else found


def proxied(value: Any) -> tuple[Any, ...] | None:
    """Return how a worker recreates a proxy of a function, or a curried function, or None for anything else.

    Pickle would send only the function and lose what the proxy adds. Raises UdfDefinitionError for a proxy that cannot
    be taken apart.
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


def pickled_form(value: Any, registered: Any, protocol: int) -> Any:
    """Return the pickled form of an object. Raises UdfDefinitionError for one that workers cannot recreate.

    Attributes of a user's class are kept even if its base class, such as numpy's array, does not pickle them.
    """
    if type(value).__module__.startswith("beartype.vale"):  # its pickled form can neither be loaded nor be compared
        raise UdfDefinitionError(
            f"a value of type {type(value).__qualname__} of beartype.vale cannot be sent to workers. Check it in a"
            " function of your own."
        )
    way = registered.get(type(value))
    parts = way(value) if way is not None else value.__reduce_ex__(protocol)
    parts = before_calls(value, parts)
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


def member_attributes(value: enum.Enum) -> dict[str, Any]:
    return {name: item for name, item in vars(value).items() if not (name[:1] == name[-1:] == "_")}


def class_apart(kind: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a worker recreates a class of the user's own, from the parts that cloudpickle sends.

    cloudpickle cannot send some classes, and sorts the attributes of the others by name.
    """
    if len(parts) <= _WITHOUT_STATE:
        return parts
    state, slots = parts[2]
    in_order = {name: state[name] for name in vars(kind) if name in state}
    parts = (*parts[:2], (in_order | state, slots), *parts[3:])
    if isinstance(kind, enum.EnumMeta):
        return _enum_apart(kind, parts)
    if type(kind).__name__ == "_TypedDictMeta":
        own = {name: vars(kind)[name] for name in _OF_TYPED_DICT & vars(kind).keys()}
        generic = tuple(base for base in kind.__bases__ if base is typing.Generic)
        return typed_dict, (type(kind), kind.__name__, generic, own)
    if type(kind).__module__.partition(".")[0] == "msgspec":
        return _struct_apart(kind, parts)
    return parts


def _struct_apart(kind: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a worker recreates a Struct of msgspec, whose fields come only from its annotations and defaults."""
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    hints = vars(kind).get("__annotations__", {})
    fields = {}
    for name in hints.keys() & names.keys():
        default: Any = defaults.get(name)
        is_factory = type(default).__name__ == "Factory"
        has_default = name in defaults and type(default).__name__ != "NoDefaultType"
        given = {"default_factory": default.factory} if is_factory else {"default": default}
        fields[name] = {"name": names[name], **(given if has_default else {})}
    config = kind.__struct_config__
    settings = {name: getattr(config, name) for name in dir(config) if not name.startswith("_")}
    settings["kw_only"] = any(name not in kind.__match_args__ for name in fields)
    state, slots = parts[2]
    made_of = ("__annotations__", "__module__", "__qualname__", "__doc__", "__post_init__")
    body = {name: state[name] for name in made_of if name in state}
    rest = {name: item for name, item in state.items() if name not in (*made_of, "__slots__", *fields)}
    return struct_class, (type(kind), kind.__name__, kind.__bases__, body, fields, settings), (rest, slots), *parts[3:]


def _struct_meta(value: Any) -> tuple[Any, ...]:
    settings = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
    given = {name: item for name, item in settings.items() if item is not None}
    kind: Any = type(value)
    return functools.partial(kind, **given), ()


def _enum_apart(kind: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a worker recreates an enum of the user's own, from the parts that cloudpickle sends.

    cloudpickle drops aliases and attributes of members, and calls `__new__` and `__init__` with the value alone.
    """
    held = {name: member_attributes(member) for name, member in kind.__members__.items()}
    has_own_code = any(isinstance(vars(base).get(name), FunctionType) for base in _own_bases(kind) for name in _MAKES)
    if not has_own_code and not any(held.values()) and len(held) == len(list(kind)):
        return parts
    _, (bases, name, qualname, _, module, *_), (state, slots), *_, set_class_state = parts
    mixed: Any = kind._member_type_
    content = getattr(mixed, "__getnewargs__", None)
    mixed = object if content is None else mixed
    values = {each: (member.value, content(member) if content else ()) for each, member in kind.__members__.items()}
    known = {key: item for key, item in state.items() if key not in held}
    filled = (known, slots, held, set_class_state)
    return made_enum, (bases, name, qualname, mixed, values, module), filled, None, None, fill_enum


def _own_bases(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if not is_installed(base.__module__))


def descriptor_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes, except functions, of an object whose class derives from one of Python's descriptors."""
    made = {*_ALSO_MADE, "func", "lock"}
    return {name: item for name, item in getattr(value, "__dict__", {}).items() if name not in made}


def pickled_module(value: Any, name: str) -> str:
    """Return the module by whose name pickle sends an object if workers do not have that module, or else ""."""
    module = pickle.whichmodule(value, name)  # type: ignore[attr-defined]
    return "" if is_installed(module) else module


# These builders travel by value themselves, as workers may have another release of the SDK. Their bytes are part of
# bundles: leave them as they are.


def cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001
    """Return a function with an empty cache."""
    return functools.lru_cache(maxsize, typed)(function)


def add_implementations(dispatcher: Any, known: dict[type, Callable[..., Any]]) -> None:
    """Register implementations with a `functools.singledispatch`."""
    for kind, function in known.items():
        dispatcher.register(kind, function)


def proxy(name: str, function: Callable[..., Any], wrapper: Any, enabled: Any) -> Any:
    """Return a function in a proxy of wrapt."""
    return getattr(importlib.import_module("wrapt"), name)(function, wrapper, enabled)


def set_state(value: Any, states: tuple[Any, dict[str, Any]]) -> None:
    """Give an object the state that its base class pickles, and its own attributes."""
    state, own = states
    if state is not None:
        value.__setstate__(state)
    value.__dict__.update(own)


def made_enum(
    bases: tuple[Any, ...], name: str, qualname: str, mixed: Any, values: dict[str, tuple[Any, Any]], module: str
) -> Any:
    """Return an enum whose members have only their values; this calls none of the user's own code."""
    waiting = iter(values.values())

    def __init__(self: Any, *_: Any) -> None:  # noqa: N807
        """Accept and ignore all arguments."""

    def __new__(cls: Any, *_: Any) -> Any:  # noqa: N807
        value, content = next(waiting)
        made = mixed.__new__(cls, *content)
        made._value_ = value
        return made

    kind: Any = type(bases[-1])
    body = kind.__prepare__(name, bases)
    body["__new__"], body["__init__"] = __new__, __init__
    for each, (value, _) in values.items():
        body[each] = (value,)
    made = kind.__new__(kind, name, bases, body)
    del made.__init__
    made.__module__, made.__qualname__ = module, qualname
    return made


def fill_enum(kind: Any, parts: tuple[Any, ...]) -> None:
    """Give an enum its methods, and its members their attributes."""
    state, slots, held, set_class_state = parts
    if "__new_member__" not in state:
        del kind.__new_member__
    set_class_state(kind, (state, slots))
    for name, own in held.items():
        vars(kind.__members__[name]).update(own)


def typed_dict(kind: Any, name: str, bases: tuple[Any, ...], own: dict[str, Any]) -> Any:
    """Return a class of `typing.TypedDict`."""
    made = kind.__new__(kind, name, bases, {**own, "__annotations__": {}})
    for each, value in own.items():
        setattr(made, each, value)
    return made


def struct_class(
    kind: Any, name: str, bases: tuple[Any, ...], body: dict[str, Any], fields: dict[str, Any], settings: dict[str, Any]
) -> Any:
    """Return a Struct of msgspec."""
    field = importlib.import_module("msgspec").field
    return kind(name, bases, {**body, **{each: field(**given) for each, given in fields.items()}}, **settings)


def descriptor(kind: Any, base: Any, functions: tuple[Any, ...], own: dict[str, Any]) -> Any:
    """Return a descriptor of a class that the user derived from one of Python's."""
    made = kind.__new__(kind, *functions)
    base.__init__(made, *functions)
    vars(made).update(own)
    return made


BUILDERS = (cached, add_implementations, proxy, set_state, made_enum, fill_enum, typed_dict, struct_class, descriptor)


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
    functools.cached_property: lambda v: (type(v), (v.func,), {"attrname": v.attrname}),  # before 3.12 it has a lock
    struct.Struct: lambda v: (type(v), (v.format,)),
    typing.NewType: lambda v: (type(v), (v.__name__, v.__supertype__), dict(vars(v))),
    typing.ParamSpec: lambda v: (type(v), (v.__name__,)),
    typing.TypeVarTuple: lambda v: (type(v), (v.__name__,)),
}


def _derived(value: Any) -> tuple[Any, ...] | None:
    base = next(base for base in _DESCRIPTORS if issubclass(type(value), base))
    if type(value) is base or is_installed(type(value).__module__):
        return None
    functions = tuple(getattr(value, name) for name in _DESCRIPTORS[base])
    return descriptor, (type(value), base, functions, descriptor_attributes(value))


#: Descriptors, and those of their functions that pickle drops from an object of a derived class.
_DESCRIPTORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel", "__doc__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
}


def has_name(value: Any) -> bool:
    """Return whether the name of an object leads workers to the same object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


#: Advice for a value that cannot be sent.
BUILD_IT_THERE = "Build what it holds inside the function, or in __init__ of a class."
#: Python's messages if another thread changes a dictionary during pickling, and the number of retries then.
_CHANGED, _TRIES = ("changed size during iteration", "keys changed during iteration"), 10
_PLACE_OF_FILE = 10  # the index of the file name in the arguments of CodeType, since Python 3.11


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pickled code. `sha256` detects damage. It does not identify the code, as pickles of equal code may differ."""

    data: bytes
    sha256: str


def make_bundle(target: Any) -> Bundle:
    """Pickle a callable so that workers need none of the user's modules.

    Raises UdfDefinitionError for objects that cannot be pickled, and for imports that would fail on workers.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            data = _pickled(target)
            break
        except UdfDefinitionError:
            raise
        except Exception as error:  # noqa: BLE001 - an object may raise anything when it is pickled
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
    """Raises UdfDefinitionError for an object that would be sent as a name that workers do not have."""

    def reducer_override(self, obj: Any) -> Any:
        parts = proxied(obj)
        if parts is not None:
            return _remade(*parts)
        apart = taken_apart(obj)
        if apart is not None:
            return apart
        if isinstance(obj, FunctionType):
            if obj in BUILDERS:
                return self._dynamic_function_reduce(obj)
            _check_imports(obj)
            _add_names_of_class_bodies(obj.__code__)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple):
            return class_apart(obj, reduced)
        if reduced is NotImplemented and not isinstance(obj, FunctionType | type):
            reduced = self._reduced(obj)
        return reduced

    def _reduced(self, obj: Any) -> Any:
        """Reduce an object as pickle does. Raises UdfDefinitionError if that is a name in one of the user's modules."""
        reduced = pickled_form(obj, self.dispatch_table, self.proto)
        if isinstance(obj, CodeType):
            return _with_file(obj, reduced)
        module = pickled_module(obj, reduced) if isinstance(reduced, str) else ""
        if module:
            raise UdfDefinitionError(by_name_only(type(obj), f"{module}.{reduced}"))
        return reduced


def _remade(make: Callable[..., Any], *parts: Any) -> tuple[Any, ...]:
    if make is proxy:
        return make, parts
    function, args, keywords = parts
    return functools.partial(make, function, *args, **keywords), ()


def by_name_only(kind: type, name: str) -> str:
    """Return the error text for an object that pickle sends as a name that workers do not have."""
    return (
        f"{name}, a value of type {kind.__qualname__}, is sent by its name only, and workers do not have that module."
        f" {BUILD_IT_THERE}"
    )


def _with_file(code: CodeType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Recreate code with its file name, for tracebacks: cloudpickle drops it since 3.1.3."""
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
    """Make cloudpickle also send globals that only the body of a class inside a function reads."""
    known = cloudpickle.cloudpickle._extract_code_globals(code)
    for body in _class_bodies(code):
        for step in dis.get_instructions(body):
            if step.opname == "LOAD_NAME":
                known.setdefault(step.argval)


def _class_bodies(code: CodeType) -> Iterator[CodeType]:
    for item in code.co_consts:
        if isinstance(item, CodeType):
            if not item.co_flags & inspect.CO_OPTIMIZED:
                yield item
            yield from _class_bodies(item)


#: cloudpickle has one registry for the process, so a thread must not remove what another one needs.
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
    steps = list(dis.get_instructions(code))
    for index, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level = steps[index - 2].argval
            name = str(step.argval)
            yield importlib.util.resolve_name("." * level + name, package) if level else name
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _imports(item, package)
