"""The contract as a page to read: docs/reference.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contract import PACKAGE, Contract, Enum, Field, Message, Method
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

_HEAD = """\
# Reference

Every call of `leman.v1`, and every message. Made by `scripts/protogen` from [protos/leman/v1](../protos/leman/v1),
where the comments stand; [the API](api.md) says how calls are made, over gRPC and over HTTP.
"""
_SCALARS = {
    getattr(FieldDescriptorProto, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptorProto)
    if name.startswith("TYPE_")
}


def page(contract: Contract) -> str:
    """Return the page."""
    return "\n".join(line.rstrip() for line in _lines(contract)).rstrip() + "\n"


def _lines(contract: Contract) -> Iterator[str]:
    yield from (_HEAD, "")
    for service in contract.services:
        calls = ", ".join(_link(f"{service.name}.{m.proto.name}", m.proto.name) for m in service.methods)
        yield f"- {_link(service.name)}: {calls}"
    for service in contract.services:
        yield f"\n## {service.name}\n\n{service.comment}"
        for method in service.methods:
            yield from _method(method)
    used = sorted(name for name in contract.used() if name.startswith(f"{PACKAGE}."))
    yield "\n## Messages"
    for name in used:
        if name in contract.messages and not contract.messages[name].map:
            yield from _message(contract.messages[name], contract)
    yield "\n## Enums"
    for name in used:
        if name in contract.enums:
            yield from _enum(contract.enums[name])


def _method(method: Method) -> Iterator[str]:
    proto = method.proto
    takes = ("stream of " if proto.client_streaming else "") + _type(proto.input_type)
    gives = ("stream of " if proto.server_streaming else "") + _type(proto.output_type)
    role = f"\n\nAsks for the role {method.rights}." if method.rights else ""
    yield f"\n### {method.service}.{proto.name}\n\n{takes} → {gives}{role}\n\n{method.comment}"


def _message(message: Message, contract: Contract) -> Iterator[str]:
    yield f"\n### {_short(message.name)}\n\n{message.comment}"
    if message.fields:
        yield "\n| field | type | |\n|---|---|---|"
        for field in message.fields:
            yield f"| `{field.proto.name}` | {_field_type(field, contract)} | {_cell(field.comment)} |"


def _enum(enum: Enum) -> Iterator[str]:
    yield f"\n### {_short(enum.name)}\n\n{enum.comment}\n\n| value | |\n|---|---|"
    for name, comment in enum.values:
        yield f"| `{name}` | {_cell(comment)} |"


def _field_type(field: Field, contract: Contract) -> str:
    proto = field.proto
    entry = contract.messages.get(proto.type_name.removeprefix("."))
    if entry is not None and entry.map:
        key, value = (part.proto for part in entry.fields)
        return f"map of {_kind(key)} to {_kind(value)}"
    if proto.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {_kind(proto)}"
    if field.oneof:
        return f"{_kind(proto)}, one of `{field.oneof}`"
    return f"optional {_kind(proto)}" if proto.proto3_optional else _kind(proto)


def _kind(proto: FieldDescriptorProto) -> str:
    return _type(proto.type_name) if proto.type_name else _SCALARS[proto.type]


def _type(name: str) -> str:
    full = name.removeprefix(".")
    return _link(_short(full)) if full.startswith(f"{PACKAGE}.") else f"`{full}`"


def _short(name: str) -> str:
    return name.removeprefix(f"{PACKAGE}.")


def _link(heading: str, text: str = "") -> str:
    anchor = re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-")
    return f"[{text or heading}](#{anchor})"


def _cell(comment: str) -> str:
    return " ".join(comment.split()).replace("|", "\\|")
