"""Functions that are installed on the workers: named, not sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from leman._signature import check_columns
from leman.error_handling import ErrorHandlingConfig
from leman.errors import UdfDefinitionError
from leman.v1 import udf_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

Kind = Literal["scalar", "array", "record_batch"]


def definition(
    entrypoint: str,
    *,
    name: str,
    version: str,
    input_columns: Sequence[str],
    data_type: pa.DataType,
    kind: Kind,
    error_handling: ErrorHandlingConfig | None,
) -> udf_pb2.UdfDefinition:
    """The definition on the wire. Raises UdfDefinitionError, InvalidArgument."""
    if kind not in ("scalar", "array", "record_batch"):
        raise UdfDefinitionError(f"kind is 'scalar', 'array' or 'record_batch', not {kind!r}")
    if not isinstance(data_type, pa.DataType):
        raise UdfDefinitionError(f"data_type is an Arrow type, such as pyarrow.int64(), not {data_type!r}")
    return udf_pb2.UdfDefinition(
        name=name,
        version=version,
        kind=udf_pb2.UdfDefinition.Kind.Value(f"KIND_{kind.upper()}"),
        input_columns=check_columns(input_columns, "input_columns"),
        output_schema=pa.schema([pa.field("value", data_type)]).serialize().to_pybytes(),
        entrypoint=entrypoint,
        error_policy=None if error_handling is None else error_handling.proto(),
    )
