"""The derived version of a function: a digest of its source and of everything that source uses.

It covers the source of the function, and of every function and class of the user's own that it uses directly or
indirectly, without comments, layout and docstrings. It also covers the values of globals, closures, defaults and bound
arguments. Of installed code (standard library, distributions) only the name counts. The same sources have the same
version in any session and on any machine, because no pickled bytes are digested. For code without a source file, such
as code typed into a shell, the compiled code is digested, which is the same in any session of one Python release.

Docstrings, annotations, attributes of functions, names of classes and the like count only if the digested code can read
them, that is, if it mentions a name that reads them (`__doc__`, `getdoc`, the attribute's own name). A module,
dictionary key or value that happens to have such a name (`schema`) is not a mention. A mention can bring in more code,
so the walk repeats until it finds no new one. Most code mentions none of these names, and its version does not depend
on docstrings and the like.
"""

from __future__ import annotations

import abc
import builtins
import collections
import contextlib
import copyreg
import dataclasses
import dis
import enum
import functools
import inspect
import logging
import operator
import sys
import typing
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import cloudpickle

from leman._functions import bundle, source_code
from leman._functions.bundle import BUILD_IT_THERE, by_name_only
from leman._functions.source_code import (
    SourceText,
    is_installed,
    is_installed_class,
    is_installed_code,
    of_parts,
    of_tree,
    plain,
)
from leman.errors import UdfDefinitionError, VersionRequired

VERSION_LENGTH = 16

_LOADS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
#: Mappings that contain exactly the entries of their dictionary. Other mappings may compute theirs.
_PLAIN_MAPPINGS = (dict, collections.Counter, collections.OrderedDict, collections.defaultdict)
#: Names by which code reads parts that a version usually omits. `_Walker.reads` looks for them.
_READS_ATTRIBUTES = ("vars", "__dict__", "getmembers", "getmembers_static")
_READS_DOCSTRINGS = ("__doc__", "getdoc", "render_doc", "getmembers", "model_json_schema", "json_schema", "schema")
_READS_HINTS = (
    "__annotations__", "get_type_hints", "get_annotations", "signature", "getfullargspec", "__signature__",
    "check_argument_types_internal", "check_return_type_internal",
)  # fmt: skip
_READS_FIELD_TYPES = (
    *_READS_HINTS, "from_dict", "from_json", "structure", "unstructure", "convert", "decode", "fields", "TypeAdapter",
    "__dataclass_fields__",
)  # fmt: skip
_READS_SOURCE = ("getsource", "getsourcelines", "getcomments", "findsource")
_READS_BASES = ("__orig_bases__", "get_original_bases", "__parameters__")
_READS_NAMES = ("__name__", "__qualname__", "__module__")
_READS_MATCH_ARGS = ("__match_args__", "MATCH_CLASS")
_READS_CACHES = ("cache_parameters", "cache_info")
#: Those of them that are plain words, which modules, values and keys may also have as names. See `_words_read`.
_PLAIN_WORDS = frozenset(
    name
    for names in (_READS_ATTRIBUTES, _READS_DOCSTRINGS, _READS_FIELD_TYPES, _READS_SOURCE, _READS_BASES, _READS_CACHES)
    for name in names
    if not name.startswith("__")
)
#: Functions that take the name of an attribute as text.
_TAKES_NAMES = (getattr, hasattr, vars, operator.attrgetter, operator.methodcaller, inspect.getattr_static)
_TAKES_NAMES_BY = {
    "getattr", "hasattr", "vars", "__dict__", "__getattribute__", "attrgetter", "methodcaller", "getattr_static",
}  # fmt: skip
#: Packages with functions of such names (`pyarrow.schema`) that read nothing of the code that is passed to them.
_READS_DATA_ONLY = ("PIL", "_codecs", "codecs", "numpy", "pandas", "polars", "pyarrow")
_PICKLED_BY_OBJECT = ("__reduce_ex__", "__reduce__", "__getstate__")
_DESCRIPTORS: tuple[type, ...] = (staticmethod, classmethod, property, functools.cached_property)
_NAMED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_NOT_CODE = {  # attributes that Python writes itself; annotations matter only if a decorator reads them
    "__abstractmethods__", "__annotations__", "__dataclass_fields__", "__dict__", "__doc__",
    "__firstlineno__", "__match_args__", "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__slots__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


def derive_version(*parts: Any) -> str:
    """Return the version of a function that consists of `parts` (functions, classes, plain values), in lower-case hex.

    Raises VersionRequired if a value cannot be digested, with the value and its place. Raises UdfDefinitionError if
    that value cannot be sent to workers either.
    """
    return _walk(parts)[0].hex()[:VERSION_LENGTH]


def unordered(value: dict[str, Any]) -> dict[str, Any]:
    """Mark a dictionary whose order the function cannot see, such as that of keyword arguments."""
    return _Unordered(value)


def _walk(parts: tuple[Any, ...]) -> tuple[bytes, _Walker]:
    """Repeat the walk until it finds no further name by which the code reads usually omitted parts."""
    read: frozenset[str] = frozenset()
    while True:
        walker = _Walker(read)
        digest = walker.digest(parts)
        found = walker.mentioned & walker.asked
        if found <= read:
            walker.check_subclasses()
            return digest, walker
        read |= found


def source_text(*parts: Any) -> str:
    """Return the source that `derive_version` digests as text for people: functions, and the constants that they read.

    The text ends before the first value that cannot be digested.
    """
    walker = _Walker(frozenset())
    with contextlib.suppress(UdfDefinitionError):
        walker.digest(parts)
    return str(walker.text)


class _Unordered(dict[Any, Any]):
    """A dictionary whose order does not affect the digest."""


class _Walker:
    """Digests a value and, recursively, every value inside it.

    The digest of a value is computed once and reused. If a value contains itself, the inner occurrence is digested as
    the value's depth in the walk. So digests depend on the order of the walk, which is the same on every machine.
    """

    def __init__(self, read: frozenset[str], within: _Walker | None = None) -> None:
        self.read = read  # names by which the code reads parts that are usually omitted
        self.mentioned: set[str] = within.mentioned if within is not None else set()
        self.asked: set[str] = within.asked if within is not None else set()
        self.active: dict[int, int] = within.active if within is not None else {}
        self.path: list[str] = within.path if within is not None else []
        self.text: SourceText = within.text if within is not None else SourceText()
        self.pickled: set[type] = within.pickled if within is not None else set()
        self.by_name: set[int] = within.by_name if within is not None else set()  # classes and functions, by id
        self.classes: set[type] = within.classes if within is not None else set()  # the user's own
        self.done: dict[int, tuple[Any, bytes]] = {}  # keeps the object too, as ids are unique only while it lives

    def digest(self, value: Any) -> bytes:
        content = plain(value)
        if content is not None:
            if type(value) is str and source_code.ANY_NAME in self.read and value.isidentifier():
                self.mentioned.add(value)  # it may be passed to `getattr`
            return of_parts(*content)
        if id(value) in self.active:
            return of_parts(b"within", str(self.active[id(value)]).encode())
        if id(value) in self.done:
            return self.done[id(value)][1]
        self.active[id(value)] = len(self.active)
        try:
            result = next((handle(value) for kinds, handle in self._handlers() if issubclass(type(value), kinds)), None)
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
            (MappingProxyType, lambda v: self._all(b"mappingproxy", dict(v))),
            (ModuleType, self._module),
            (FunctionType, self._function),
            (MethodType, lambda v: self._all(b"method", v.__func__, v.__self__)),
            (functools.partial, self._partial),
            ((staticmethod, classmethod), lambda v: self._descriptor(v, v.__func__)),
            (property, lambda v: self._descriptor(v, v.fget, v.fset, v.fdel)),
            (functools.cached_property, lambda v: self._descriptor(v, v.func)),
            (enum.Enum, self._member),
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
        content = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        items = (self.digest(item) for item in content)
        return of_parts(self._container(value), *items, *self._own_state(value))

    def _unordered(self, value: set[Any] | frozenset[Any]) -> bytes:
        held = set.copy(value) if isinstance(value, set) else frozenset.copy(value)  # other threads may change it
        items = sorted(self._apart(item) for item in held)
        return of_parts(self._container(value), *items, *self._own_state(value))

    def _mapping(self, value: dict[Any, Any]) -> bytes:
        held = dict.copy(value) if type(value) in _PLAIN_MAPPINGS else value  # likewise
        met = [(self._apart(key), key, item) for key, item in list(held.items())]  # the entries that pickle sends
        keys = sorted(met, key=lambda entry: entry[0])
        items = [of_parts(digest, self._at(f"[{_shown(key)}]", item)) for digest, key, item in keys]
        if type(value) is not _Unordered and [entry[0] for entry in met] != [entry[0] for entry in keys]:
            items.append(of_parts(b"in this order", *(entry[0] for entry in met)))
        if isinstance(value, collections.defaultdict) and value.default_factory is not None:
            items.append(of_parts(b"default", self._at("default_factory", value.default_factory)))
        return of_parts(self._container(value), *items, *self._own_state(value))

    def _own_state(self, value: Any) -> list[bytes]:
        """Digest the attributes of an object whose class derives from one of Python's containers or other types."""
        own = {} if type(value).__module__ == "builtins" else _slots(value) | (getattr(value, "__dict__", None) or {})
        return [of_parts(b"attributes", self._at("its attributes", _Unordered(own)))] if own else []

    def _container(self, value: Any) -> bytes:
        kind = dict if type(value) is _Unordered else type(value)
        return kind.__name__.encode() if kind.__module__ == "builtins" else self.digest(kind)

    def _apart(self, item: Any) -> bytes:
        """Return the digest of an unordered collection's item, independent of values that were digested before."""
        return _Walker(self.read, self).digest(item)

    def check_subclasses(self) -> None:
        """Raise an error if the code asks a class for its subclasses and workers would find fewer."""
        if "__subclasses__" not in self.mentioned:
            return
        for owner in self.classes:
            found: type
            for found in type.__subclasses__(owner):
                if found not in self.classes and not is_installed_class(found):
                    raise UdfDefinitionError(
                        f"The function reads __subclasses__(), and workers do not have {found.__qualname__}, a subclass"
                        f" of {owner.__qualname__} that nothing else names: keep your classes in a list or dict."
                    )

    def reads(self, *names: str) -> bool:
        """Return whether the digested code uses one of these names to read something."""
        self.asked.update(names)
        return not self.read.isdisjoint(names)

    def _descriptor(self, value: Any, *functions: Any) -> bytes:
        base = next(kind for kind in _DESCRIPTORS if isinstance(value, kind))
        parts: list[Any] = []
        if type(value) is not base:
            parts = [type(value), _Unordered(bundle.descriptor_attributes(value) | _slots(value))]
        if isinstance(value, property) and value.__doc__ != getattr(value.fget, "__doc__", None):
            parts += [value.__doc__] if self.reads(*_READS_DOCSTRINGS) else []
        return self._all(base.__name__.encode(), *functions, *parts)

    def _member(self, value: enum.Enum) -> bytes:
        own = self._state(type(value), bundle.member_attributes(value))
        return self._all(b"member", type(value), value.name, value.value, *([own] if own else []))

    def _partial(self, value: functools.partial[Any]) -> bytes:
        function: Any = value.func
        blind = isinstance(function, FunctionType) and not function.__code__.co_flags & inspect.CO_VARKEYWORDS
        keywords = _Unordered(value.keywords) if blind else value.keywords
        own = self._attributes_read(value)
        if type(value) is not functools.partial:
            own = [self.digest(type(value)), *self._own_state(value)]
        return self._all(b"partial", value.func, value.args, keywords, *own)

    def _attributes_read(self, value: Any) -> list[bytes]:
        """Digest the attributes that were set on a function, if the code reads them."""
        every = self.reads(*_READS_ATTRIBUTES, source_code.ANY_NAME)
        own = {
            name: item
            for name, item in vars(value).items()
            if name not in ("__wrapped__", "cache_parameters") and (self.reads(name) or every)
        }
        if "__wrapped__" in vars(value) and self.reads("__wrapped__", "unwrap", *_READS_HINTS):
            own["__wrapped__"] = vars(value)["__wrapped__"]
        return [of_parts(b"attributes", self._at("its attributes", _Unordered(own)))] if own else []

    def _module(self, value: ModuleType) -> bytes:
        if is_installed(value.__name__):
            return of_parts(b"module", value.__name__.encode())
        read = {"__getattr__", *(name for name in ("__all__", "__dir__") if self.reads(name))}
        held = {name: item for name, item in vars(value).copy().items() if not name.startswith("__") or name in read}
        own = {
            name: item for name, item in held.items() if getattr(item, "__module__", value.__name__) == value.__name__
        }
        others = {
            name: item
            for name, item in held.items()
            if name not in own and isinstance(item, FunctionType | type) and not is_installed(item.__module__)
        }
        objects = {
            name: item
            for name, item in held.items()
            if name not in own and not isinstance(item, (*_NAMED, FunctionType, type, ModuleType))
            and not bundle.has_name(item)
        }  # fmt: skip
        more = [self._mapping(_Unordered(found)) for found in (others, objects) if found]
        return of_parts(b"user module", self._mapping(_Unordered(own)), *more)

    def _class(self, value: type) -> bytes:
        name = f"{value.__module__}:{value.__qualname__}"
        if is_installed_class(value):
            return of_parts(b"named", name.encode())
        self.classes.add(value)
        self.text.declared(value)
        parts = [self._at(f"base of {value.__qualname__}", base) for base in value.__bases__]
        parts.append(self.digest(type(value)))
        described = bundle.described(value)
        held = {name: item for name, item in vars(value).items() if name != "__slotnames__"}
        if value in self.pickled:  # pickle has added it to the class, and existing versions include it
            held["__slotnames__"] = copyreg._slotnames(value)  # type: ignore[attr-defined]
        for attribute, item in sorted(held.items()):
            if attribute in _NOT_CODE or isinstance(item, MemberDescriptorType) or _generated(item):
                continue
            if bundle.made_from_seeds(attribute, item):
                parts.append(of_parts(attribute.encode(), b"generated"))
            elif described is None or not bundle.is_derived(attribute, item):
                self.text.value(f"{value.__qualname__}.{attribute}", item)
                parts.append(of_parts(attribute.encode(), self._at(f"{value.__qualname__}.{attribute}", item)))
        if dataclasses.is_dataclass(value):
            parts += [self._dataclass_field(field, value) for field in dataclasses.fields(value)]
            parts += self._init_only(value)
        if described is not None:
            parts.append(of_parts(b"settings", self._at(f"fields of {value.__qualname__}", described)))
        registered = _registered(value)
        if registered:
            parts.append(of_parts(b"registered", *sorted(self._apart(kind) for kind in registered)))
        return of_parts(b"class", *parts, *self._read_of_class(value, by_library=_made_by_library(value)))

    def _read_of_class(self, value: type, *, by_library: bool) -> list[bytes]:
        """Digest the parts of a class, apart from its code, that its library or the digested code reads."""
        own = vars(value)
        parts: list[bytes] = []
        if own.get("__annotations__") and (self.reads(*_READS_HINTS) or by_library or typing.is_typeddict(value)):
            hints = [(name, self._hint(hint, value.__module__)) for name, hint in value.__annotations__.items()]
            parts.append(of_parts(b"hints", *(of_parts(name.encode(), hint) for name, hint in hints)))
        if isinstance(own.get("__doc__"), str) and (self.reads(*_READS_DOCSTRINGS) or by_library):
            parts.append(of_parts(b"docstring", own["__doc__"].encode(errors="surrogatepass")))
        if "__slots__" in own and self.reads("__slots__"):
            parts.append(of_parts(b"slots", self.digest(own["__slots__"])))
        if "__match_args__" in own and self.reads(*_READS_MATCH_ARGS):
            parts.append(of_parts(b"match", self.digest(own["__match_args__"])))
        if own.get("__orig_bases__") and (self.reads(*_READS_BASES) or by_library):
            bases = [self._hint(base, value.__module__) for base in own["__orig_bases__"]]
            parts.append(of_parts(b"generic", *bases))
        if self.reads(*_READS_ATTRIBUTES):
            parts.append(of_parts(b"order", *(name.encode() for name in own if not name.startswith("__"))))
        return parts + self._name_read(value)

    def _name_read(self, value: Any) -> list[bytes]:
        """Digest the own name of a class or function that is used by another name, if the digested code reads it."""
        if id(value) in self.by_name or not self.reads(*_READS_NAMES):
            return []
        own = value.__name__ if value.__name__ != value.__qualname__.rpartition(".")[2] else ""
        return [of_parts(b"called", value.__qualname__.encode(), *([own.encode()] if own else []))]

    def _hint(self, value: Any, module: str) -> bytes:
        """Digest an annotation. For a quoted one, digest the user's own code in `module` that it mentions."""
        if not isinstance(value, str):
            return self.digest(value)
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        found = {name: namespace[name] for name in source_code.names_in(value) if name in namespace}
        own = {name: item for name, item in found.items() if not self._is_elsewhere(item)}
        return of_parts(b"text", value.encode(), *(self._at(name, item) for name, item in sorted(own.items())))

    def _is_elsewhere(self, item: Any) -> bool:
        if isinstance(item, ModuleType):
            return True
        return is_installed(str(getattr(item, "__module__", None) or type(item).__module__))

    def _init_only(self, value: type) -> list[bytes]:
        """Digest the parameters of a dataclass, in their order, if some of them are not fields."""
        every: dict[str, Any] = vars(value).get("__dataclass_fields__", {})
        names = [name for name, field in every.items() if field._field_type.name != "_FIELD_CLASSVAR"]
        fields = [field.name for field in dataclasses.fields(value)]
        return [] if names == fields else [of_parts(b"init", *(name.encode() for name in names))]

    def _dataclass_field(self, field: dataclasses.Field[Any], owner: type) -> bytes:
        kind: Any = str(field.type)
        if " at 0x" in kind or (self.reads(*_READS_FIELD_TYPES) and not source_code.is_plain_hint(field.type)):
            kind = self._hint(field.type, owner.__module__)
        elif isinstance(field.type, str) and self.reads(*_READS_FIELD_TYPES):
            kind = self._hint(kind, owner.__module__)
        settings = (field.name, kind, field.init, field.compare, bool(field.kw_only))
        default = None if field.default is dataclasses.MISSING else (field.default,)
        factory = None if field.default_factory is dataclasses.MISSING else (field.default_factory,)
        more: list[Any] = [] if field.repr and field.hash is None else [(field.repr, field.hash)]
        if field.metadata:
            more.append(dict(field.metadata))
        return self._all(b"field", settings, default, factory, *more)

    def _function(self, value: FunctionType) -> bytes:
        known = bundle.implementations(value)
        if known is not None:
            return of_parts(b"singledispatch", self._mapping(_Unordered(known)))
        checked = bundle.checked_function(value)
        if checked is not None:
            function, settings = checked
            hints = [(name, self._hint(hint, value.__module__)) for name, hint in function.__annotations__.items()]
            return self._all(b"checked", function, settings, *(self._all(name, hint) for name, hint in hints))
        home = str(value.__globals__.get("__name__") or "")
        if is_installed_code(value.__globals__):
            return self._installed(home, value)
        self.path.append(f"{value.__qualname__}()")
        node = self._node(value)
        self.text.function(value, node)
        parts = [self._code(value.__code__) if node is None else of_tree(source_code.normal_form(node))]
        named = None if value.__kwdefaults__ is None else _Unordered(value.__kwdefaults__)
        parts.append(self._at("a default", [value.__defaults__, named]))
        self.mentioned |= self._names_read(value)
        if source_code.ANY_NAME not in self.mentioned and source_code.reads_any_name(value.__code__, node):
            self.mentioned.add(source_code.ANY_NAME)
        self._check_patches(value, node)
        for name, used in self._used(value, node):
            self.text.value(name, used)
            seen = used
            if type(used) is dict and node is not None and _only_looked_up(name, used, node):
                seen = _Unordered(used)
            elif getattr(used, "__name__", None) == name.rpartition(".")[2]:
                self.by_name.add(id(used))
            parts.append(of_parts(name.encode(), self._at(name, seen)))
        parts += self._read_of_function(value, node)
        self.path.pop()
        return of_parts(b"function", *parts)

    def _names_read(self, value: FunctionType) -> set[str]:
        """Return the names by which a function may read something, without plain words that it uses in other ways."""
        names = _mentions(value.__code__)
        words = names & _PLAIN_WORDS
        if not words:
            return names
        by_text = self.reads(source_code.ANY_NAME) or not names.isdisjoint(_TAKES_NAMES_BY)
        return names - words | _words_read(value.__code__, words, value, by_text=by_text)

    def _check_patches(self, function: FunctionType, node: source_code.FunctionNode | None) -> None:
        """Raise an error if the function uses code that the program has patched into installed modules."""
        names = _mentions(function.__code__)
        for name, chains in ({} if node is None else source_code.attribute_chains(node)).items():
            found: Any = function.__globals__.get(name)
            paths = [(name, found)] if isinstance(found, type) else []
            if isinstance(found, ModuleType) and is_installed(found.__name__):
                paths = [(".".join((name, *chain)), _reached(found, chain)) for chain in sorted(chains)]
            for path, item in paths:
                patch = path if _is_own_code(item) and isinstance(found, ModuleType) else _patched(item, names)
                if patch:
                    raise UdfDefinitionError(
                        f"{function.__qualname__}() uses {patch if patch == path else f'{path}.{patch}'}, which your"
                        " program has put into installed code, and workers have that code without it: call your"
                        f" function or class by its own name (at {self._place()})."
                    )

    def _read_of_function(self, value: FunctionType, node: source_code.FunctionNode | None) -> list[bytes]:
        """Digest the parts of a function, apart from its code, that the digested code reads, such as its docstring."""
        parts = self._attributes_read(value)
        if value.__doc__ is not None and self.reads(*_READS_DOCSTRINGS):
            parts.append(of_parts(b"docstring", self.digest(value.__doc__)))
        if value.__annotations__ and self.reads(*_READS_HINTS):
            hints = ((name, self._hint(hint, value.__module__)) for name, hint in value.__annotations__.items())
            parts.append(of_parts(b"hints", *(of_parts(name.encode(), hint) for name, hint in hints)))
        if node is not None and self.reads(*_READS_SOURCE):
            parts.append(of_parts(b"source", source_code.text_of(value, node).encode(errors="surrogatepass")))
        return parts + self._name_read(value)

    def _code(self, code: CodeType) -> bytes:
        """Digest compiled code without its lines and its file."""
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        constants = [self._code(item) if isinstance(item, CodeType) else self.digest(item) for item in code.co_consts]
        python = tuple(sys.version_info[:2])
        return self._all(b"typed in", python, shape, names, (code.co_code, code.co_exceptiontable), *constants)

    def _installed(self, home: str, value: FunctionType) -> bytes:
        """Digest a library's function: its name, and its closure if the library's decorator made it."""
        name = f"{home}:{value.__code__.co_qualname}".encode()
        self.mentioned.add(value.__name__)  # for imports such as `from inspect import getdoc as words`
        found: Any = sys.modules.get(value.__module__ or "")
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is value and is_installed(value.__module__):
            return of_parts(b"named", name)
        held = dict(_closure(value))
        if home.partition(".")[0] in bundle.CACHES:  # cached results are not part of the code
            held = {key: {} if isinstance(item, dict) else item for key, item in held.items() if key != "cache_info"}
        own = {key: item for key, item in vars(value).items() if key != "__wrapped__" and self.reads(key)}
        own = {key: item for key, item in own.items() if _is_plain(item)}
        parts = [of_parts(key.encode(), self._at(key, item)) for key, item in held.items()]
        return of_parts(
            b"named", name, *parts, *([of_parts(b"attributes", self.digest(_Unordered(own)))] if own else [])
        )

    def _node(self, value: FunctionType) -> source_code.FunctionNode | None:
        try:
            return source_code.function_node(value)
        except VersionRequired as error:
            raise self._refuse(error.message) from None

    def _used(self, function: FunctionType, node: source_code.FunctionNode | None) -> Iterator[tuple[str, Any]]:
        """Yield the names and values of the closure, and of the globals that the function and its inner ones read."""
        chains = {} if node is None else source_code.attribute_chains(node)
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
        within = bundle.cached_function(value)
        if within is not None:
            return self._all(b"cached", within, *self._cache_settings(value))
        described = bundle.described_object(value)
        if described is not None:
            return self._all(b"object", type(value), described)
        proxied = self._proxied(value)
        if proxied is not None:
            return self._all(b"proxy", *proxied)
        wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
        if isinstance(wrapped, FunctionType):
            return self._all(b"wrapped", type(value), wrapped, *self._settings(value, wrapped))
        if issubclass(type(value), _NAMED):
            return self._builtin(value)
        if issubclass(type(value), logging.Logger):
            return of_parts(b"logger", value.name.encode())
        return self._reduced(value)

    def _cache_settings(self, value: Any) -> list[bytes]:
        """Digest a cache's setting `typed`, and its size and attributes if code reads them."""
        settings = value.cache_parameters()
        parts = [b"typed"] if settings["typed"] else []
        if self.reads(*_READS_CACHES):
            parts.append(self.digest(settings["maxsize"]))
        return parts + self._attributes_read(value)

    def _proxied(self, value: Any) -> tuple[Any, ...] | None:
        try:
            return bundle.proxied(value)
        except UdfDefinitionError as error:
            raise UdfDefinitionError(f"{error.message} (at {self._place()})") from None

    def _settings(self, value: Any, wrapped: FunctionType) -> list[bytes]:
        """Digest the state of an object that wraps a function, without that function.

        A library's object may contain caches, so only its plain public values and the user's own code in it count.
        """
        ours = is_installed_class(type(value))
        own = {
            name: item
            for name, item in vars(value).items()
            if name not in (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__")
            and item is not wrapped
            and not (name in vars(wrapped) and vars(wrapped)[name] is item)
            and (not ours or _is_own_code(item) or (not name.startswith("_") and _is_plain(item)))
        }
        own |= bundle.compiler_options(value)
        return [of_parts(b"settings", self._at("its attributes", _Unordered(own)))] if own else []

    def _builtin(self, value: Any) -> bytes:
        owner = getattr(value, "__self__", None)
        name = f"{getattr(value, '__module__', None)}:{value.__qualname__}".encode()
        bound = owner is not None and not isinstance(owner, ModuleType | type)
        return of_parts(b"builtin", name, self.digest(owner) if bound else b"")

    def _reduced(self, value: Any) -> bytes:
        """Digest any other object: its class and its state, as pickle would copy them."""
        apart = bundle.taken_apart(value)
        try:
            parts = bundle.pickled_form(value, copyreg.dispatch_table, 4) if apart is None else apart[:2]
        except UdfDefinitionError as error:
            raise UdfDefinitionError(f"{error.message} (at {self._place()})") from None
        except Exception:  # noqa: BLE001 - an object may raise anything
            raise self._unreadable(value) from None
        if all(getattr(type(value), name) is getattr(object, name, None) for name in _PICKLED_BY_OBJECT):
            self.pickled.add(type(value))
        if type(value) in (operator.attrgetter, operator.methodcaller):
            self.mentioned.update(
                part for name in value.__reduce__()[1] if type(name) is str for part in name.split(".")
            )
        if isinstance(parts, str):
            self._check_name(value, parts)
            return of_parts(b"named", f"{type(value).__module__}:{parts}".encode())
        make, arguments, *state = parts
        content = [list(item) if isinstance(item, Iterator) else self._state(type(value), item) for item in state]
        return self._all(b"object", make, arguments, content)

    def _state(self, kind: type, state: Any) -> Any:
        """Return the attributes of an object that count, in their order if the code reads the order.

        Values that cached properties stored never count.
        """
        if type(state) is tuple and len(state) == 2 and type(state[0]) is dict:
            return (self._state(kind, state[0]), self._state(kind, state[1]))
        if type(state) is not dict:
            return state
        kept = {
            name: item
            for name, item in state.items()
            if not isinstance(name, str)
            or not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
        }
        if not kept and state:  # an object without attributes has no state
            return None
        return kept if self.reads(*_READS_ATTRIBUTES) else _Unordered(kept)

    def _check_name(self, value: Any, name: str) -> None:
        """Raise an error if pickle would send the value as a name that workers do not have."""
        module = bundle.pickled_module(value, name)
        if module:
            raise UdfDefinitionError(f"{by_name_only(type(value), f'{module}.{name}')} (at {self._place()})")

    def _unreadable(self, value: Any) -> UdfDefinitionError:
        """Return the error for a value that cannot be digested. Most such values cannot be sent to workers either."""
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
    """Return whether dataclass, namedtuple or the like generated this method. The generator's input counts instead.

    A generated method gets its name after it is compiled. A method typed into a shell is compiled under its own name.
    """
    function = inspect.unwrap(item.__func__ if isinstance(item, staticmethod | classmethod) else item)
    if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith("<string>"):
        return False
    return function.__code__.co_qualname != function.__qualname__


def _shown(key: Any) -> str:
    """Return a key as text for the path to a value, without calling the user's code."""
    try:
        return repr(key)
    except Exception:  # noqa: BLE001
        return type(key).__name__


def _slots(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are stored in slots of the user's classes."""
    own = [kind for kind in type(value).__mro__ if "__slots__" in vars(kind) and not is_installed_class(kind)]
    held = (name for kind in own for name, item in vars(kind).items() if isinstance(item, MemberDescriptorType))
    return {name: getattr(value, name) for name in held if hasattr(value, name)}


def _registered(value: type) -> list[type]:
    """Return the classes that were registered with an abstract base class."""
    if not issubclass(type(value), abc.ABCMeta):
        return []
    found = (reference() for reference in abc._get_dump(value)[0])  # type: ignore[attr-defined]
    return [kind for kind in found if kind is not None]


def _is_own_code(item: Any) -> bool:
    if isinstance(item, FunctionType):
        return not is_installed_code(item.__globals__)
    return isinstance(item, type) and not is_installed_class(item)


def _reached(module: ModuleType, chain: tuple[str, ...]) -> Any:
    """Follow a chain of attributes of an installed module to the first value that is not a module."""
    found: Any = module
    for name in chain:
        if not isinstance(found, ModuleType):
            break
        found = vars(found).get(name)
    return found


def _patched(value: Any, names: set[str]) -> str:
    """Return the first of `names` under which an installed class has the user's own code, or ""."""
    for base in value.__mro__ if isinstance(value, type) else ():
        if base.__module__ == "builtins" or not is_installed_class(base):
            continue
        for name in names & vars(base).keys():
            item = vars(base)[name]
            made_of = [item, *getattr(item, "__dict__", {}).values()]  # a pandas accessor contains a class
            if not isinstance(item, type) and any(map(_is_own_code, made_of)):
                return name
    return ""


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not set yet
            continue


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(map(_is_plain, value))
    return kind in (str, bytes, int, float, complex, bool, type(None)) or (
        kind in (list, set) and all(map(_is_plain, value.copy()))
    )


def _only_looked_up(name: str, value: dict[Any, Any], node: source_code.FunctionNode) -> bool:
    """Return whether a function cannot see the order of keys in a dictionary, nor in dictionaries that it contains."""
    return all(map(_is_plain, value.copy().values())) and name in source_code.order_free(node)


def _made_by_library(value: type) -> bool:
    """Return whether the metaclass is from an installed library. It may then read any attribute of the class."""
    home = type(value).__module__
    return home.partition(".")[0] not in sys.stdlib_module_names and is_installed(home)


def _mentions(code: CodeType) -> set[str]:
    """Return the names by which code may read something: attributes, globals, and texts for `getattr`."""
    found = {item for item in code.co_consts if type(item) is str and item.isidentifier()} | set(code.co_names)
    if dis.opmap["MATCH_CLASS"] in code.co_code[::2]:
        found.add("MATCH_CLASS")
    return found.union(*(_mentions(item) for item in code.co_consts if isinstance(item, CodeType)))


def _words_read(code: CodeType, words: set[str], function: FunctionType, *, by_text: bool) -> set[str]:
    """Return those of `words` that code uses to read an attribute, or to name a library function that may read one.

    A user's module or function with such a name does not count, because its code is digested itself. A plain value with
    such a name does not count either. An attribute with such a name counts if its object is unknown here.

    Args:
        by_text: Whether texts may be names of attributes.
    """
    unknown = object()
    enclosed = dict(_closure(function))
    known = {**vars(builtins), **function.__globals__}
    texts = {item for item in code.co_consts if type(item) is str} & words
    found = set(texts) if by_text else set()
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "PUSH_NULL")]
    held: Any = unknown  # the value that the previous instruction loaded
    source = ""  # the module of an import
    for index, step in enumerate(steps):
        name = str(step.argval)
        if step.opname in _LOADS_GLOBAL:
            held = known.get(name, unknown)
            is_read = held is unknown or _may_read(held)
            found |= texts if any(held is taker for taker in _TAKES_NAMES) else set()
        elif step.opname == "LOAD_DEREF":
            held, is_read = enclosed.get(name, unknown), False
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"):
            held = getattr(held, name, unknown) if isinstance(held, ModuleType) else unknown
            is_read = held is unknown or _may_read(held)
        elif step.opname == "IMPORT_NAME":
            source, held, is_read = "" if steps[index - 2].argval else name, unknown, False
        elif step.opname == "IMPORT_FROM":
            held, is_read = unknown, is_installed(source) and source.partition(".")[0] not in _READS_DATA_ONLY
        else:
            held, is_read = unknown, False
        if is_read and name in words:
            found.add(name)
    return found.union(
        *(_words_read(item, words, function, by_text=by_text) for item in code.co_consts if isinstance(item, CodeType))
    )


def _may_read(value: Any) -> bool:
    """Return whether a value is library code that may read docstrings, annotations or the like."""
    if isinstance(value, ModuleType) or not callable(value) or _is_own_code(value):
        return False
    home = str(getattr(value, "__module__", None) or type(value).__module__)
    return home.partition(".")[0] not in _READS_DATA_ONLY


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
    """Yield the parts of a user's module that the code uses, or all parts if it passes on the module itself."""
    for chain in sorted(chains):
        value: Any = module
        path = name
        for attribute in chain:
            if not isinstance(value, ModuleType) or is_installed(value.__name__):
                break
            value = getattr(value, attribute, None)
            path = f"{path}.{attribute}"
        yield path, value
