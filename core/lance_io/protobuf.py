"""Protobuf messages of Lance's table format, as far as they are read here: declared without generated code."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Kind = descriptor_pb2.FieldDescriptorProto
#: (name, number, type, name of the message where it is one) of each field, by message.
Layout = Mapping[str, Sequence[tuple[str, int, int, str]]]

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
