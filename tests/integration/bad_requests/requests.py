"""Requests that are right, and what can be wrong with each of their fields."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.integration.bad_requests.values import JSON_VALUES, NOT_UTF8, NOT_UTF8_BYTES, values_of

Path = tuple[FieldDescriptor, ...]
#: Parts of messages that have a form of their own: their fields are not looked at one by one.
_WHOLE = ("google.protobuf.",)


@dataclass(frozen=True)
class Case:
    """One bad request: as bytes of a message, or as JSON."""

    name: str
    body: bytes
    #: The path of the field that is wrong; empty: none alone.
    field: str = ""

    def __str__(self) -> str:
        return self.name


def paths(message: Descriptor, above: Path = (), within: tuple[str, ...] = ()) -> Iterator[Path]:
    """Every field at every depth; a message within itself is not looked into again."""
    for field in message.fields:
        path = (*above, field)
        yield path
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith(_WHOLE):
            continue
        if inner.full_name not in within:
            yield from paths(inner, path, (*within, inner.full_name))


def bad_messages(method: MethodDescriptor, right: Callable[[], Message]) -> Iterator[Case]:
    """Requests of which one field is missing or hostile, and bytes that are no request."""
    for path in paths(method.input_type):
        name = ".".join(field.name for field in path)
        missing = right()
        _holder(missing, path).ClearField(path[-1].name)
        yield Case(f"{name}: missing", missing.SerializeToString(), name)
        for label, value in values_of(path[-1]):
            request = right()
            _put(_holder(request, path), path[-1], value)
            body = request.SerializeToString().replace(NOT_UTF8.encode(), NOT_UTF8_BYTES)
            yield Case(f"{name}: {label}", body, name)
    whole = right().SerializeToString()
    yield from (
        Case("empty", b""),
        Case("cut off", whole[: len(whole) // 2] + b"\x0a"),
        Case("garbage", b"\xff" * 64),
        Case("text", b"GET / HTTP/1.1\r\n\r\n"),
        Case("unknown fields", whole + b"\xfa\x7f\x03abc"),
        Case("groups without end", b"\x0b" * 5_000),
        Case("field of another type", b"\x08\x96\x01\x10\x01\x18\x01" + whole),
        Case("field twice", whole + whole),
    )


def bad_json(method: MethodDescriptor, right: Callable[[], Message]) -> Iterator[Case]:
    """Requests of which one field has another kind of JSON, and bodies that are none."""
    for path in paths(method.input_type):
        name = ".".join(field.name for field in path)
        for label, value in JSON_VALUES.items():
            request = json_format.MessageToDict(right())
            _put_json(request, path, value)
            yield Case(f"{name}: {label}", json.dumps(request).encode(), name)
    whole = json_format.MessageToJson(right()).encode()
    yield from (
        Case("nothing", b""),
        Case("null", b"null"),
        Case("a list", b"[]"),
        Case("a string", b'"x"'),
        Case("cut off", whole[:-1]),
        Case("not utf8", b'{"database": "\xff\xfe"}'),
        Case("half a pair", b'{"database": "\\ud800"}'),
        Case("NaN", b'{"database": NaN}'),
        Case("unknown field", b'{"nope": 1}'),
        Case("deep", b'{"database": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
        Case("deep objects", b'{"table": ' * 2_000 + b"1" + b"}" * 2_000),
        Case("field twice", b'{"database": "/dev/null", "database": "/dev/zero"}'),
        Case("megabyte", b" " * 1_048_576 + b"{}"),
    )


def put(message: Any, path: Path, value: str | list[str] | dict[str, str]) -> None:
    """Set the value at a path of a message: a text, in a list as the only one, all of a list, or what a map has."""
    in_list = path[-1].is_repeated and isinstance(value, str)
    _put(_holder(message, path), path[-1], [value] if in_list else value)


def _holder(message: Any, path: Path) -> Any:
    """The message that the last field lies in; what is above it is made, in lists as the first element."""
    for field in path[:-1]:
        value = getattr(message, field.name)
        if field.is_repeated:
            message = value[0] if value else value.add()
        else:
            value.SetInParent()
            message = value
    return message


def _put(holder: Any, field: FieldDescriptor, value: Any) -> None:
    holder.ClearField(field.name)
    if isinstance(value, dict):
        getattr(holder, field.name).update(value)
    elif field.is_repeated and field.message_type is not None:
        for _ in range(value):
            getattr(holder, field.name).add()
    elif field.is_repeated:
        getattr(holder, field.name).extend(value)
    elif isinstance(value, tuple):
        inner = getattr(holder, field.name)
        inner.seconds, inner.nanos = value
    elif isinstance(value, list):
        getattr(holder, field.name).paths.extend(value)
    else:
        setattr(holder, field.name, value)


def _put_json(request: Any, path: Path, value: Any) -> None:
    for field in path[:-1]:
        made: Any = [{}] if field.is_repeated else {}
        request = request.setdefault(field.json_name, made)
        request = request[0] if field.is_repeated else request
    if path[-1].containing_oneof is not None:
        for other in path[-1].containing_oneof.fields:
            request.pop(other.json_name, None)
    request[path[-1].json_name] = value


class RightRequests:
    """Makes a request that its service answers, of any method.

    Most fields are known by their names; `special` has what a method needs beside, in JSON. `{fresh}` in a text becomes
    a word that no other request has.
    """

    def __init__(self, named: dict[str, Any], special: dict[str, dict[str, Any]]) -> None:
        self._named = named
        self._special = special
        self._fresh = itertools.count()

    def name(self, method: str, field: str, value: Any) -> None:
        """What a method's requests have in a field from now on."""
        self._special[method] = {**self._special.get(method, {}), field: value}

    def of(self, method: MethodDescriptor) -> Message:
        """A new request, with words of its own where they must not be said twice."""
        request = GetMessageClass(method.input_type)()
        given = {field.name: self._named[field.name] for field in method.input_type.fields if field.name in self._named}
        given |= self._special.get(f"{method.containing_service.name}.{method.name}", {})
        return json_format.ParseDict(self._filled(given), request)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner) for inner in value]
        return value.replace("{fresh}", f"w{next(self._fresh)}") if isinstance(value, str) else value
