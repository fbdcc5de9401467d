"""Requests for previews in protobuf messages → domain values. See `leman_core.wire.convert` for what is raised."""

from __future__ import annotations

from leman.v1 import jobs_pb2
from leman_core.functions.remote.protocol import FunctionDescription
from leman_core.model.errors import InvalidArgument
from leman_core.model.preview import PreviewSpec
from leman_core.wire.convert_udfs import error_policy_from_proto, udf_from_proto


def preview_from_proto(
    message: jobs_pb2.PreviewFunctionRequest, described: FunctionDescription | None = None
) -> PreviewSpec:
    """Return what is asked.

    Args:
        described: what the servers of a remote function say of it.

    Raises:
        InvalidArgument: BAD_REQUEST, BAD_NUMBER, BAD_UDF.
    """
    given = message.HasField("definition")
    spec = PreviewSpec(
        database=message.table.database,
        table=message.table.table,
        column=message.column,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        definition=udf_from_proto(message.definition, described) if given else None,
        sql_expression=message.sql_expression,
        error_policy=error_policy_from_proto(message.error_policy) if message.HasField("error_policy") else None,
        input_columns=tuple(message.input_columns),
        where=message.where,
        read_version=message.read_version,
        read_tag=message.read_tag,
    )
    _check(message, spec)
    return spec


def _check(message: jobs_pb2.PreviewFunctionRequest, spec: PreviewSpec) -> None:
    if not (spec.column or spec.names_function):
        raise InvalidArgument(
            "BAD_REQUEST", "neither a column nor a function is named: there is nothing to try", field="column"
        )
    if spec.udf_version and not spec.udf_name:
        raise InvalidArgument("BAD_REQUEST", "a version of a function needs its name", field="udf")
    if message.WhichOneof("function") is not None and not spec.names_function:
        raise InvalidArgument("BAD_REQUEST", "the function that is given is empty: name one", field="function")
    if spec.sql_expression and spec.input_columns:
        raise InvalidArgument(
            "BAD_REQUEST", "a SQL expression names its columns itself: leave input_columns out", field="input_columns"
        )
    if spec.column and spec.input_columns and not spec.names_function:
        raise InvalidArgument(
            "BAD_REQUEST",
            "a column has its own inputs: name a function too, or leave input_columns out",
            field="input_columns",
        )
    if message.HasField("read_version") and spec.read_version < 1:
        raise InvalidArgument(
            "BAD_NUMBER", "read_version is 1 or more; leave it out for the latest", field="read_version"
        )
    if message.HasField("read_tag") and not spec.read_tag.strip():
        raise InvalidArgument("BAD_REQUEST", "read_tag is empty: name a tag, or leave it out", field="read_tag")
