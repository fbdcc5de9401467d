"""The boundary of the SDK: public calls check their arguments by annotations, and tracebacks end at the call."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
import warnings
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from leman.errors import InvalidArgument, LemanError

#: Parameters that the functions check themselves, with better messages.
_OWN_WORDS = frozenset({"endpoint", "query"})


class _Kind(NamedTuple):
    told: str
    admits: Callable[[Any], bool]


class Arguments:
    """Checks the arguments of a function by its annotations.

    An annotation that cannot be evaluated, such as one of a package that is not imported yet, allows every value.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._kinds: dict[str, _Kind] | None = None

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise InvalidArgument for a value of a wrong type. Python checks the signature."""
        if self._kinds is None:
            self._kinds = dict(_kinds(self._function, self._signature))
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            return
        rest = next((name for name, p in self._signature.parameters.items() if p.kind is p.VAR_KEYWORD), "")
        for name, value in {**given, **given.get(rest, {})}.items():
            kind = self._kinds.get(name)
            if kind is not None and not kind.admits(value):
                raise InvalidArgument(f"{name} is {kind.told}, not {_shown(value)}")


def _shown(value: Any) -> str:
    """Describe a value by its type, without its content, which may be secret."""
    if value is None:
        return "None"
    if isinstance(value, list | tuple | set | Mapping):
        return f"such a {type(value).__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeio' else 'a'} {name}"


def _kinds(function: Callable[..., Any], signature: inspect.Signature) -> Iterator[tuple[str, _Kind]]:
    """Yield each parameter, and each option of a TypedDict parameter, with the values that it accepts."""
    names = vars(sys.modules[function.__module__])
    for name, parameter in signature.parameters.items():
        annotation = _evaluated(parameter.annotation, names)
        if parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(annotation) is typing.Unpack:
            yield from _options(typing.get_args(annotation)[0])
        elif parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            kind = _kind(annotation)
            if kind is not None and name not in _OWN_WORDS:
                yield name, kind


def _options(typed: Any) -> Iterator[tuple[str, _Kind]]:
    names = vars(sys.modules[typed.__module__])
    for base in (*getattr(typed, "__orig_bases__", ()), typed):
        for name, annotation in getattr(base, "__annotations__", {}).items():
            text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
            kind = _kind(_evaluated(text, names))
            if kind is not None:
                yield name, kind


def _evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """Evaluate an annotation that is text. Return Any if it uses names that are unknown at run time."""
    if not isinstance(annotation, str):
        return annotation
    if "pa." in annotation:
        return Any  # an annotation of pyarrow: importing pyarrow for the check would be slow
    try:
        return eval(annotation, dict(names))  # noqa: S307 - the SDK's own annotations
    except (NameError, AttributeError, TypeError):
        return Any


def _number(value: Any) -> bool:
    return (hasattr(value, "__float__") or hasattr(value, "__index__")) and not isinstance(value, bool)


def _collection(value: Any) -> bool:
    return isinstance(value, abc.Iterable) and not isinstance(value, str | bytes | Mapping)


def _switch(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


#: Annotation → the values that it accepts. Numbers and booleans of other packages, such as numpy, are accepted too.
_PLAIN: dict[Any, _Kind] = {
    None: _Kind("None", lambda value: value is None),
    type(None): _Kind("None", lambda value: value is None),
    str: _Kind("a str", lambda value: isinstance(value, str)),
    bytes: _Kind("bytes", lambda value: isinstance(value, bytes)),
    bool: _Kind("True or False", _switch),
    int: _Kind("an int", lambda value: hasattr(value, "__index__") and not isinstance(value, bool)),
    float: _Kind("a number", _number),
}


def _kind(annotation: Any) -> _Kind | None:
    """Return what an annotation accepts, or None if it accepts everything."""
    if isinstance(annotation, type | types.NoneType) and annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return _Kind(" or ".join(map(repr, inner)), lambda value: isinstance(value, str))
    if isinstance(annotation, type) and annotation.__module__.startswith("leman.") and not _is_protocol(annotation):
        return _Kind(f"a {annotation.__name__}", lambda value: isinstance(value, annotation))
    if origin is abc.Callable:
        return _Kind("a function", callable)
    kinds = [_kind(one) for one in inner]
    return _made_of(origin, kinds) if kinds else None


def _made_of(origin: Any, kinds: list[_Kind | None]) -> _Kind | None:
    if origin in (typing.Union, types.UnionType):
        return _union(kinds)
    if origin in (typing.Required, typing.NotRequired):
        return kinds[0]
    if origin in (abc.Mapping, dict):
        return _mapping(kinds[0], kinds[1])
    if origin in (list, set, abc.Sequence, abc.Iterable, abc.Collection):
        return _sequence(kinds[0])
    return None


def _is_protocol(annotation: type) -> bool:
    return getattr(annotation, "_is_protocol", False)


def _union(kinds: list[_Kind | None]) -> _Kind | None:
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    told = [kind.told for kind in known if kind.told != "None"]
    return _Kind(" or ".join(told), lambda value: any(kind.admits(value) for kind in known))


def _sequence(inner: _Kind | None) -> _Kind:
    def admits(value: Any) -> bool:
        # the elements of an iterator can be read only once, so their consumer checks them
        looked_at = inner is not None and isinstance(value, list | tuple | set | frozenset)
        return _collection(value) and (not looked_at or all(map(inner.admits, value)))  # type: ignore[union-attr]

    told = "a list" if inner is None else "a list of names" if inner.told == "a str" else f"a list, each {inner.told}"
    return _Kind(told, admits)


def _mapping(key: _Kind | None, inner: _Kind | None) -> _Kind:
    def admits(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and (key is None or all(map(key.admits, value)))
            and (inner is None or all(map(inner.admits, value.values())))
        )

    told = "a mapping"
    if key is not None and inner is not None:
        told += f" of keys, each {key.told}, to values, each {inner.told}"
    return _Kind(told, admits)


P = ParamSpec("P")
R = TypeVar("R")


def boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Check a public function's arguments, and end the tracebacks of its errors at the call. Supports generators.

    Errors of Leman and interrupts lose the frames and causes inside the SDK. Other exceptions are bugs and keep their
    whole traceback. Raises InvalidArgument for arguments that do not fit the annotations.
    """
    if inspect.isgeneratorfunction(function):
        return cast("Callable[P, R]", _generator(function))
    arguments = Arguments(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments.check(args, kwargs)
            return function(*args, **kwargs)
        except (LemanError, KeyboardInterrupt) as error:
            failure = error
        raise failure.with_traceback(None) from None

    return call


def warn(text: str) -> None:
    """Warn, and blame the line outside the SDK that made the call."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("leman."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def _generator(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    arguments = Arguments(function)

    @functools.wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            arguments.check(args, kwargs)
            yield from function(*args, **kwargs)
            return
        except (LemanError, KeyboardInterrupt) as error:
            failure = error
        raise failure.with_traceback(None) from None

    return iterate
