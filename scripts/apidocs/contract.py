"""The public contract as the proto compiler describes it, with comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "leman.v1"
#: Numbers of fields in descriptor.proto, of which the paths of comments are made.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS, _ONEOFS = 2, 3, 4, 8
_VALUES = _METHODS = 2


@dataclass(frozen=True)
class Field:
    """A field of a message."""

    proto: FieldDescriptorProto
    comment: str
    oneof: str
    """Name of the oneof that it belongs to; empty: none."""


@dataclass(frozen=True)
class Message:
    """A message; `map` where it stands for an entry of a map field."""

    name: str
    comment: str
    proto: DescriptorProto
    fields: list[Field]

    @property
    def map(self) -> bool:
        return self.proto.options.map_entry


@dataclass(frozen=True)
class Enum:
    """An enum with the names and comments of its values."""

    name: str
    comment: str
    values: list[tuple[str, str]]


@dataclass(frozen=True)
class Method:
    """An RPC."""

    service: str
    proto: MethodDescriptorProto
    comment: str
    rights: str
    """What it asks of its caller, such as `editor`; empty: nothing is said."""

    @property
    def path(self) -> str:
        return f"/{PACKAGE}.{self.service}/{self.proto.name}"


@dataclass(frozen=True)
class Service:
    """A service of the public package."""

    name: str
    comment: str
    methods: list[Method]


@dataclass
class Contract:
    """Services of the public package, and all messages and enums that they use, by full name."""

    services: list[Service] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)

    def used(self) -> Iterator[str]:
        """Yield the full names of what the services use, each once, in the order of its first use."""
        seen: dict[str, None] = {}
        waiting = [name for s in self.services for m in s.methods for name in (m.proto.input_type, m.proto.output_type)]
        while waiting:
            name = waiting.pop(0).removeprefix(".")
            if name in seen:
                continue
            seen[name] = None
            yield name
            if name in self.messages:
                waiting += [f.proto.type_name for f in self.messages[name].fields if f.proto.type_name]


def read(path: Path) -> Contract:
    """Return the contract from a set of descriptors with source info."""
    contract = Contract()
    files = FileDescriptorSet.FromString(path.read_bytes()).file
    rights = _Rights(files)
    for file in files:
        _File(file, contract, rights).read()
    contract.services.sort(key=lambda service: service.name)
    return contract


class _Rights:
    """Reads the option `access` of methods (leman/v1/annotations.proto)."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        pool = DescriptorPool()
        for file in files:
            pool.Add(file)
        self._access = pool.FindExtensionByName(f"{PACKAGE}.access")
        self._roles = pool.FindEnumTypeByName(f"{PACKAGE}.Role").values_by_number
        self._options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.MethodOptions"))

    def of(self, method: MethodDescriptorProto) -> str:
        """Return the least role, and when the right `code` is asked for, too."""
        options: Any = self._options.FromString(method.options.SerializeToString())
        if not options.HasExtension(self._access):
            return ""
        access = options.Extensions[self._access]
        told = f"`{self._roles[access.role].name.removeprefix('ROLE_').lower()}`"
        if access.code:
            return f"{told}, and the right `code`"
        if access.code_where:
            return f"{told}, and the right `code` where {' or '.join(f'`{p}`' for p in access.code_where)} is set"
        return told


class _File:
    """One file of the set."""

    def __init__(self, file: FileDescriptorProto, contract: Contract, rights: _Rights) -> None:
        self._file = file
        self._contract = contract
        self._rights = rights
        self._comments = {tuple(at.path): _text(at.leading_comments) for at in file.source_code_info.location}

    def read(self) -> None:
        for n, message in enumerate(self._file.message_type):
            self._message(message, self._file.package, (_MESSAGES, n))
        for n, enum in enumerate(self._file.enum_type):
            self._enum(enum, self._file.package, (_ENUMS, n))
        if self._file.package == PACKAGE:
            self._contract.services += map(self._service, range(len(self._file.service)))

    def _service(self, n: int) -> Service:
        proto, at = self._file.service[n], (_SERVICES, n)
        methods = [
            Method(proto.name, method, self._comment(*at, _METHODS, m), self._rights.of(method))
            for m, method in enumerate(proto.method)
        ]
        return Service(proto.name, self._comment(*at), methods)

    def _message(self, proto: DescriptorProto, above: str, at: tuple[int, ...]) -> None:
        name = f"{above}.{proto.name}"
        fields = [
            Field(part, self._comment(*at, _FIELDS, n), _oneof(proto, part)) for n, part in enumerate(proto.field)
        ]
        self._contract.messages[name] = Message(name, self._comment(*at), proto, fields)
        for n, nested in enumerate(proto.nested_type):
            self._message(nested, name, (*at, _NESTED, n))
        for n, enum in enumerate(proto.enum_type):
            self._enum(enum, name, (*at, _NESTED_ENUMS, n))

    def _enum(self, proto: EnumDescriptorProto, above: str, at: tuple[int, ...]) -> None:
        name = f"{above}.{proto.name}"
        values = [(value.name, self._comment(*at, _VALUES, n)) for n, value in enumerate(proto.value)]
        self._contract.enums[name] = Enum(name, self._comment(*at), values)

    def _comment(self, *path: int) -> str:
        return self._comments.get(path, "")


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    real = field.HasField("oneof_index") and not field.proto3_optional
    return message.oneof_decl[field.oneof_index].name if real else ""


def _text(comment: str) -> str:
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.splitlines()).strip()
