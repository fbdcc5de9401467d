"""Protobuf messages of Lance's table format, as far as they are read here: declared without generated code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

Kind = descriptor_pb2.FieldDescriptorProto
#: (name, number, type, name of the message where it is one) of each field, by message.
Layout = Mapping[str, Sequence[tuple[str, int, int, str]]]

#: Kinds of fields: a number in as many bytes as it needs, a length and so many bytes, numbers of fixed size.
_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}

#: Fragments with their files, as Lance's table.proto has them, as far as they are read here.
FRAGMENTS: Layout = {
    # packed field ids, taken as bytes: most files of a table hold the same ones, and are looked up
    "DataFile": [("path", 1, Kind.TYPE_STRING, ""), ("fields", 2, Kind.TYPE_BYTES, "")],
    "DeletionFile": [
        ("read_version", 2, Kind.TYPE_UINT64, ""),
        ("id", 3, Kind.TYPE_UINT64, ""),
        ("num_deleted_rows", 4, Kind.TYPE_UINT64, ""),
    ],
    "DataFragment": [
        ("id", 1, Kind.TYPE_UINT64, ""),
        ("files", 2, Kind.TYPE_MESSAGE, "DataFile"),
        ("deletion_file", 3, Kind.TYPE_MESSAGE, "DeletionFile"),
        ("physical_rows", 4, Kind.TYPE_UINT64, ""),
    ],
}


def message_class(package: str, layout: Layout, *, root: str, repeated: Collection[str]) -> Any:
    """Return the class of the message `root`.

    What is not declared is kept as unknown fields; every field that is not repeated tells whether it is there.

    Args:
        repeated: names of repeated fields, of any message.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package)
    file.syntax = "proto2"
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for field, number, kind, target in fields:
            added = message.field.add(name=field, number=number)
            added.type = kind  # type: ignore[assignment]
            added.label = Kind.LABEL_REPEATED if field in repeated else Kind.LABEL_OPTIONAL
            if kind == Kind.TYPE_MESSAGE:
                added.type_name = f".{package}.{target}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root}"))


def parts_of(message: bytes, most_fields: int) -> Iterator[bytes]:
    """Yield a message in parts of so many fields; each part is a message of the same kind, and merged they are it.

    Raises:
        DecodeError: it ends within a field, or holds one of a kind that there is not.
    """
    begin = at = count = 0
    while at < len(message):
        at = _after_field(message, at)
        count += 1
        if count == most_fields:
            yield message[begin:at]
            begin, count = at, 0
    if at > len(message):
        raise DecodeError("the message ends within a field")
    yield message[begin:]


def _after_field(message: bytes, at: int) -> int:
    """Return where the field that begins there ends."""
    try:
        wire = message[at] & 7
        while message[at] >= 0x80:
            at += 1
        at += 1
        if wire == _LENGTH:
            length, shift = message[at] & 0x7F, 7
            while message[at] >= 0x80:
                at += 1
                length |= (message[at] & 0x7F) << shift
                shift += 7
            return at + 1 + length
        if wire == _VARINT:
            while message[at] >= 0x80:
                at += 1
            return at + 1
    except IndexError:
        raise DecodeError("the message ends within a field") from None
    if wire not in _FIXED:
        raise DecodeError(f"there are no fields of kind {wire}")
    return at + _FIXED[wire]
