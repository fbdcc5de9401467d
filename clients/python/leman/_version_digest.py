"""The derived version of a function: a digest of its source and of everything that source uses.

Covered: the function's source without comments, layout and docstrings; the same of every function and class
of the user's own that it uses, however far away; the values of globals, closures, defaults and bound
arguments. Code that is installed (standard library, distributions) enters by its name. The same sources
give the same version in any session and on any machine; bytes of a pickle play no part. Of what was typed
in, so that nobody keeps its source, the compiled code takes its place: the same in any session of one
Python.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import dis
import enum
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import cloudpickle

from leman import _by_value, _source
from leman._bundle import BUILD_IT_THERE, by_name_only
from leman._digests import of_parts, of_tree, plain
from leman._modules import is_installed, is_installed_class, is_installed_code
from leman._source_text import SourceText
from leman.errors import UdfDefinitionError, VersionRequired

VERSION_LENGTH = 16

_LOADS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
#: Mappings whose entries are those of the dictionary that they are; others may make them up.
_PLAIN_MAPPINGS = (dict, collections.Counter, collections.OrderedDict, collections.defaultdict)
_NAMED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_NOT_CODE = {  # written by Python itself; annotations matter only where a decorator reads them
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dict__", "__doc__",
    "__firstlineno__", "__match_args__", "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__slots__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


def derive_version(*parts: Any) -> str:
    """The version of a function that is made of `parts` (functions, classes, plain values), as lower-case
    hex.

    Raises VersionRequired, saying what and where, when something cannot be read, and UdfDefinitionError where
    it cannot be sent to workers either.
    """
    return _Walker().digest(parts).hex()[:VERSION_LENGTH]


def source_text(*parts: Any) -> str:
    """The text of all that `derive_version` looks at, for people: functions, and constants that they read.

    Of what it cannot read, and of what comes after that, it says nothing.
    """
    walker = _Walker()
    with contextlib.suppress(UdfDefinitionError):
        walker.digest(parts)
    return str(walker.text)


class _Walker:
    """Digests values one inside the other.

    What is met again has the digest it had; what is met inside itself (recursion) enters as its depth. Both
    follow from the order of the walk, which is the same everywhere.
    """

    def __init__(self, within: _Walker | None = None) -> None:
        self.active: dict[int, int] = within.active if within is not None else {}
        self.path: list[str] = within.path if within is not None else []
        self.text: SourceText = within.text if within is not None else SourceText()
        self.done: dict[int, tuple[Any, bytes]] = {}  # with the object: ids are unique only while it lives

    def digest(self, value: Any) -> bytes:
        """The digest of any value."""
        content = plain(value)
        if content is not None:
            return of_parts(*content)
        if id(value) in self.active:
            return of_parts(b"within", str(self.active[id(value)]).encode())
        if id(value) in self.done:
            return self.done[id(value)][1]
        self.active[id(value)] = len(self.active)
        try:
            result = next((handle(value) for kinds, handle in self._handlers() if isinstance(value, kinds)), None)
            result = self._object(value) if result is None else result
        finally:
            del self.active[id(value)]
        self.done[id(value)] = (value, result)
        return result

    def _handlers(self) -> tuple[tuple[Any, Callable[[Any], bytes]], ...]:
        return (
            ((list, tuple), self._sequence),
            ((set, frozenset), self._unordered),
            (dict, self._mapping),
            (ModuleType, self._module),
            (FunctionType, self._function),
            (MethodType, lambda v: self._all(b"method", v.__func__, v.__self__)),
            (functools.partial, lambda v: self._all(b"partial", v.func, v.args, v.keywords)),
            ((staticmethod, classmethod), lambda v: self._all(type(v).__name__.encode(), v.__func__)),
            (property, lambda v: self._all(b"property", v.fget, v.fset, v.fdel)),
            (functools.cached_property, lambda v: self._all(b"cached_property", v.func)),
            (enum.Enum, lambda v: self._all(b"member", type(v), v.name, v.value)),
            (type, self._class),
        )

    def _at(self, where: str, value: Any) -> bytes:
        self.path.append(where)
        result = self.digest(value)
        self.path.pop()
        return result

    def _all(self, *parts: Any) -> bytes:
        return of_parts(*(part if isinstance(part, bytes) else self.digest(part) for part in parts))

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> bytes:
        return of_parts(self._container(value), *(self.digest(item) for item in value))

    def _unordered(self, value: set[Any] | frozenset[Any]) -> bytes:
        held = value.copy() if type(value) is set else value  # other threads may write to it
        return of_parts(self._container(value), *sorted(self._apart(item) for item in held))

    def _mapping(self, value: dict[Any, Any]) -> bytes:
        held = dict.copy(value) if type(value) in _PLAIN_MAPPINGS else value  # likewise
        keys = sorted(((self._apart(key), key) for key in held), key=lambda pair: pair[0])
        items = (of_parts(digest, self._at(f"[{key!r}]", held[key])) for digest, key in keys)
        return of_parts(self._container(value), *items)

    def _container(self, value: Any) -> bytes:
        kind = type(value)
        return kind.__name__.encode() if kind.__module__ == "builtins" else self.digest(kind)

    def _apart(self, item: Any) -> bytes:
        """The digest of an item that comes in no order: what was met before it must not matter."""
        return _Walker(self).digest(item)

    def _module(self, value: ModuleType) -> bytes:
        if is_installed(value.__name__):
            return of_parts(b"module", value.__name__.encode())
        own = {
            name: item
            for name, item in vars(value).copy().items()
            if not name.startswith("__") and getattr(item, "__module__", value.__name__) == value.__name__
        }
        return of_parts(b"user module", self._mapping(own))

    def _class(self, value: type) -> bytes:
        name = f"{value.__module__}:{value.__qualname__}"
        if is_installed_class(value):
            return of_parts(b"named", name.encode())
        parts = [self._at(f"base of {value.__qualname__}", base) for base in value.__bases__]
        parts.append(self.digest(type(value)))
        for attribute, item in sorted(vars(value).items()):
            if attribute not in _NOT_CODE and not isinstance(item, MemberDescriptorType) and not _generated(item):
                self.text.value(f"{value.__qualname__}.{attribute}", item)
                parts.append(of_parts(attribute.encode(), self._at(f"{value.__qualname__}.{attribute}", item)))
        if dataclasses.is_dataclass(value):
            parts += [self._dataclass_field(field) for field in dataclasses.fields(value)]
        return of_parts(b"class", *parts)

    def _dataclass_field(self, field: dataclasses.Field[Any]) -> bytes:
        settings = (field.name, str(field.type), field.init, field.compare, bool(field.kw_only))
        default = None if field.default is dataclasses.MISSING else (field.default,)
        factory = None if field.default_factory is dataclasses.MISSING else (field.default_factory,)
        return self._all(b"field", settings, default, factory)

    def _function(self, value: FunctionType) -> bytes:
        known = _by_value.implementations(value)
        if known is not None:
            return of_parts(b"singledispatch", self._mapping(known))
        home = str(value.__globals__.get("__name__") or "")
        if is_installed_code(value.__globals__):
            return self._installed(home, value)
        self.path.append(f"{value.__qualname__}()")
        node = self._node(value)
        self.text.function(value, node)
        parts = [self._code(value.__code__) if node is None else of_tree(_source.normal_form(node))]
        parts.append(self._at("a default", [value.__defaults__, value.__kwdefaults__]))
        for name, used in self._used(value, node):
            self.text.value(name, used)
            parts.append(of_parts(name.encode(), self._at(name, used)))
        self.path.pop()
        return of_parts(b"function", *parts)

    def _code(self, code: CodeType) -> bytes:
        """Compiled code, without the lines and the file that it came from."""
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        constants = [self._code(item) if isinstance(item, CodeType) else self.digest(item) for item in code.co_consts]
        python = tuple(sys.version_info[:2])
        return self._all(b"typed in", python, shape, names, (code.co_code, code.co_exceptiontable), *constants)

    def _installed(self, home: str, value: FunctionType) -> bytes:
        """A function of a library: its name, and what it encloses where the library's decorator made it."""
        name = f"{home}:{value.__code__.co_qualname}".encode()
        found: Any = sys.modules.get(value.__module__ or "")
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value and is_installed(value.__module__):
            return of_parts(b"named", name)
        return of_parts(b"named", name, *(of_parts(key.encode(), self._at(key, item)) for key, item in _closure(value)))

    def _node(self, value: FunctionType) -> _source.FunctionNode | None:
        try:
            return _source.function_node(value)
        except VersionRequired as error:
            raise self._refuse(error.message) from None

    def _used(self, function: FunctionType, node: _source.FunctionNode | None) -> Iterator[tuple[str, Any]]:
        """Names and values of the closure and of the globals that it reads, its inner functions included."""
        chains = {} if node is None else _source.attribute_chains(node)
        found = dict(_closure(function))
        missing = object()
        for name in _global_names(function.__code__):
            value = function.__globals__.get(name, missing)
            if value is not missing:
                found.setdefault(name, value)
        for name, value in sorted(found.items()):
            if isinstance(value, ModuleType) and not is_installed(value.__name__):
                yield from _attributes(name, value, chains.get(name, {()}))
            else:
                yield name, value

    def _object(self, value: Any) -> bytes:
        identity = getattr(type(value), "__leman_identity__", None)
        if identity is not None:
            return of_parts(b"udf", self.digest(identity(value)))
        within = _by_value.cached_function(value)
        if within is not None:
            return self._all(b"cached", within)
        wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
        if isinstance(wrapped, FunctionType):
            return self._all(b"wrapped", type(value), wrapped)
        if isinstance(value, _NAMED):
            return self._builtin(value)
        if isinstance(value, logging.Logger):
            return of_parts(b"logger", value.name.encode())
        return self._reduced(value)

    def _builtin(self, value: Any) -> bytes:
        owner = getattr(value, "__self__", None)
        name = f"{getattr(value, '__module__', None)}:{value.__qualname__}".encode()
        bound = owner is not None and not isinstance(owner, ModuleType | type)
        return of_parts(b"builtin", name, self.digest(owner) if bound else b"")

    def _reduced(self, value: Any) -> bytes:
        """Any other object: what copying it would need, which is its class and its state."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            parts = registered(value) if registered else value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001 - objects may refuse in any way they like
            raise self._unreadable(value) from None
        if isinstance(parts, str):
            self._check_name(value, parts)
            return of_parts(b"named", f"{type(value).__module__}:{parts}".encode())
        make, arguments, *state = parts
        content = [list(item) if isinstance(item, Iterator) else item for item in state]
        return self._all(b"object", make, arguments, content)

    def _check_name(self, value: Any, name: str) -> None:
        """Refuse what is sent by its name, where nothing tells what that names."""
        module = _by_value.home(value, name)
        if module and _by_value.taken_apart(value) is None:
            raise UdfDefinitionError(f"{by_name_only(type(value), f'{module}.{name}')} (at {self._place()})")

    def _unreadable(self, value: Any) -> UdfDefinitionError:
        """What is said of a value that no version can be derived from: mostly it cannot be sent either."""
        kind = type(value).__qualname__
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 - as in `_reduced`
            return UdfDefinitionError(
                f"a value of type {kind} cannot be sent to workers (at {self._place()}). {BUILD_IT_THERE}"
            )
        return self._refuse(f"a value of type {kind} cannot be read")

    def _refuse(self, what: str) -> VersionRequired:
        how = "Give the function a version= and change it with the code."
        return VersionRequired(f"Cannot derive the version: {what} (at {self._place()}). {how}")

    def _place(self) -> str:
        return " → ".join(self.path) or "the function"


def _generated(item: Any) -> bool:
    """Methods that dataclass, namedtuple and the like made from strings: their input is looked at instead. They were
    given their names later; a method of a class that was typed in has had its own from the beginning."""
    function = inspect.unwrap(item.__func__ if isinstance(item, staticmethod | classmethod) else item)
    if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith("<string>"):
        return False
    return function.__code__.co_qualname != function.__qualname__


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not set yet
            continue


def _global_names(code: CodeType) -> set[str]:
    names = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in _LOADS_GLOBAL and not str(step.argval).startswith("@")
    }
    for item in code.co_consts:
        if isinstance(item, CodeType):
            names |= _global_names(item)
    return names


def _attributes(name: str, module: ModuleType, chains: set[tuple[str, ...]]) -> Iterator[tuple[str, Any]]:
    """The parts of a user module that are used; all of it where it is used as a whole."""
    for chain in sorted(chains):
        value: Any = module
        path = name
        for attribute in chain:
            if not isinstance(value, ModuleType) or is_installed(value.__name__):
                break
            value = getattr(value, attribute, None)
            path = f"{path}.{attribute}"
        yield path, value
