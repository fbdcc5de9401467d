"""What classes and functions of modelling libraries are made of.

Pydantic, SQLModel, msgspec and beartype keep what they derived from a class in it: schemas with addresses of objects,
compiled validators, generated code. None of that is the same in another process. The version looks at what the user
wrote instead: fields, settings, and which method checks which field.
"""

from __future__ import annotations

import decimal
import sys
from types import FunctionType
from typing import Any

#: Libraries whose wrappers keep results of earlier calls in a dictionary.
CACHES = frozenset({"cachetools", "toolz", "cytoolz"})

#: Attributes in which objects of a class keep what calls have made, or addresses; they do as well with nothing there.
_LEFT_BY_CALLS = {
    ("numpy", "vectorize"): ("_ufunc",),
    ("sklearn", "CountVectorizer"): ("_stop_words_id",),
    ("sklearn", "TfidfVectorizer"): ("_stop_words_id",),
}
_WITH_STATE = 3  # parts of what pickle makes of an object

_DERIVED = ("__pydantic_", "_sa_", "__sqlmodel_")
_DERIVED_NAMES = {"__signature__", "__table__", "__mapper__", "__class_vars__", "__hash__", "__fields__"}


def described(value: type) -> list[Any] | None:
    """The fields and settings of a class of such a library; None for other classes."""
    kind = _base(value, "pydantic", "BaseModel")
    if kind is not None:
        return _pydantic(value)
    if "__is_pydantic_dataclass__" in vars(value):
        return [*_pydantic(value), vars(value).get("__pydantic_config__")]
    kind = _base(value, "msgspec", "Struct")
    return None if kind is None else _msgspec(value)


def is_derived(name: str, item: Any) -> bool:
    """Tell whether the library made this attribute of a class from what `described` gives."""
    if name.startswith(_DERIVED) or name in _DERIVED_NAMES or name == "__is_pydantic_dataclass__":
        return True
    return type(item).__module__.partition(".")[0] == "sqlalchemy"


def described_object(value: Any) -> Any | None:
    """What an object of such a library was made from, where it keeps compiled validators; None for others."""
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
        case "cachetools", _ if hasattr(value, "maxsize"):  # what a call left in a cache is no edit
            made = [value.maxsize, getattr(value, "ttl", None)]
        case "jsonschema", _ if hasattr(value, "iter_errors"):  # it also keeps an index that hash seeds order
            made = [value.schema, value.format_checker]
        case "loguru", "Logger":  # where it writes to is no part of the function
            made = list(value._options)
        case "typing", "ForwardRef":
            made = [value.__forward_arg__]
        case "typing", "TypeVar":
            made = [value.__name__, value.__bound__, value.__constraints__]
            made += [value.__covariant__, value.__contravariant__]
    return made


def before_calls(value: Any, parts: Any) -> Any:
    """What pickle makes of an object, without what calls have left in it."""
    if type(value) is decimal.Context:  # what was inexact, by rules that it has
        return parts[0], (*parts[1][:6], [], *parts[1][7:])
    if type(value).__name__ == "ModelPrivateAttr" and type(value).__module__.partition(".")[0] == "pydantic":
        return type(value)(value.default, default_factory=value.default_factory).__reduce_ex__(4)
    left = _LEFT_BY_CALLS.get((type(value).__module__.partition(".")[0], type(value).__name__))
    if left is None or not isinstance(parts, tuple) or len(parts) < _WITH_STATE or type(parts[2]) is not dict:
        return parts
    return (*parts[:2], {**parts[2], **{name: {} for name in left if name in parts[2]}}, *parts[3:])


def compiler_options(value: Any) -> dict[str, Any]:
    """The options of a function that numba compiles which change what it computes; empty for other objects."""
    if type(value).__module__.partition(".")[0] != "numba":
        return {}
    options = getattr(value, "targetoptions", {})
    return {name: options[name] for name in ("error_model", "fastmath", "parallel") if options.get(name)}


def made_from_seeds(name: str, item: Any) -> bool:
    """Tell whether attrs made a method with a number in it that is another one in each process."""
    code = getattr(item, "__code__", None)
    return name == "__hash__" and code is not None and code.co_filename.startswith("<attrs generated")


def checked_function(value: FunctionType) -> tuple[FunctionType, list[Any]] | None:
    """The function within one that beartype generated, and what it was told; None for others."""
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
