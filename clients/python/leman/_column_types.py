"""Types that a column may be given in place of its own, as requests name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leman.errors import InvalidArgument
from leman.v1 import types_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_NAMES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "large_utf8",
    "binary": "binary",
    "large_binary": "large_binary",
}


def type_to_proto(data_type: pa.DataType) -> types_pb2.JsonArrowDataType:
    """The type on the wire. Raises InvalidArgument where no column becomes one."""
    if not isinstance(data_type, pa.DataType):
        raise InvalidArgument(f"data_type is a pyarrow type, such as pa.int64(), not a {type(data_type).__name__}")
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        values = data_type.value_field
        told = types_pb2.JsonArrowDataType(type="large_list" if pa.types.is_large_list(data_type) else "list")
        told.fields.add(name=values.name, type=type_to_proto(values.type), nullable=values.nullable)
        return told
    name = _NAMES.get(str(data_type))
    if name is None:
        raise InvalidArgument(
            f"no column becomes {data_type}: integers and floats become other ones, and text, bytes and lists their"
            " large forms; add a column of that type instead"
        )
    return types_pb2.JsonArrowDataType(type=name)
