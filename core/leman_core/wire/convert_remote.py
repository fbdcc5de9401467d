"""Definitions of remote functions, made whole by what their servers say."""

from __future__ import annotations

import pyarrow as pa

from leman.v1 import udf_pb2
from leman_core.functions.remote import servers
from leman_core.functions.remote.protocol import FunctionDescription
from leman_core.model.errors import FailedPrecondition
from leman_core.model.udf import UdfDefinition
from leman_core.wire.convert_arrow import schema_to_bytes


def completed(message: udf_pb2.UdfDefinition, told: FunctionDescription) -> udf_pb2.UdfDefinition:
    """Return a definition with what it leaves out: version, input columns and types."""
    full = udf_pb2.UdfDefinition()
    full.CopyFrom(message)
    full.version = full.version or told.version
    if not full.input_columns:
        full.input_columns.extend(told.inputs.names)
    if not full.input_schema and not full.HasField("json_input_schema"):
        named = zip(full.input_columns, told.input_types, strict=False)
        full.input_schema = schema_to_bytes(pa.schema([pa.field(name, type_) for name, type_ in named]))
    if not full.output_schema and not full.HasField("json_output_schema"):
        full.output_schema = schema_to_bytes(pa.schema([pa.field("value", told.output)]))
    return full


def check(udf: UdfDefinition, told: FunctionDescription) -> None:
    """Refuse a definition that says something else than the servers.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH.
    """
    address = udf.remote.addresses[0] if udf.remote is not None else ""
    servers.check_version(address, told, udf.version)
    if len(udf.input_columns) != len(told.inputs):
        raise FailedPrecondition(
            "FUNCTION_SIGNATURE_MISMATCH",
            f"At the function server {address} '{told.function}' reads {len(told.inputs)} columns "
            f"({', '.join(told.inputs.names)}), {len(udf.input_columns)} are named ({', '.join(udf.input_columns)})",
            address=address,
        )
    declared = tuple(pa.null() if each is None else each for each in udf.input_types)
    servers.check_signature(address, told, declared, udf.output_type)
