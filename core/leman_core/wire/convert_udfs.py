"""Convert functions, their options and requests for previews to protobuf and back.

The servers of a remote function describe it, and their description completes its definition. See `convert_values` for
the errors.
"""

from __future__ import annotations

import pyarrow as pa

from leman._format.stored_functions import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman.v1 import jobs_pb2, udf_pb2
from leman_core.functions import arrow_types, function_servers
from leman_core.functions.function_servers import FunctionDescription
from leman_core.model.plan import PreviewSpec
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.wire.convert_types import schema_from_either, schema_to_json
from leman_core.wire.convert_values import (
    duration_to_proto,
    enum_value,
    number_from_proto,
    only_field,
    or_none,
    positive_from_proto,
    schema_to_bytes,
    seconds_from_proto,
)


def complete_definition(message: udf_pb2.UdfDefinition, told: FunctionDescription) -> udf_pb2.UdfDefinition:
    """Return the definition of a remote function, with missing fields taken from a server's description of it.

    These are the version, the input columns and the types.
    """
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


def check_described(udf: UdfDefinition, told: FunctionDescription) -> None:
    """Refuse a definition that contradicts the servers' description of the function.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH.
    """
    address = udf.remote.addresses[0] if udf.remote is not None else ""
    function_servers.check_version(address, told, udf.version)
    if len(udf.input_columns) != len(told.inputs):
        raise FailedPrecondition(
            "FUNCTION_SIGNATURE_MISMATCH",
            f"At the function server {address} '{told.function}' reads {len(told.inputs)} columns "
            f"({', '.join(told.inputs.names)}), {len(udf.input_columns)} are named ({', '.join(udf.input_columns)})",
            address=address,
        )
    declared = tuple(pa.null() if each is None else each for each in udf.input_types)
    function_servers.check_signature(address, told, declared, udf.output_type)


# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


_KIND_TO = {
    UdfKind.SCALAR: udf_pb2.UdfDefinition.KIND_SCALAR,
    UdfKind.ARRAY: udf_pb2.UdfDefinition.KIND_ARRAY,
    UdfKind.RECORD_BATCH: udf_pb2.UdfDefinition.KIND_RECORD_BATCH,
    UdfKind.SQL: udf_pb2.UdfDefinition.KIND_SQL,
    UdfKind.REMOTE: udf_pb2.UdfDefinition.KIND_REMOTE,
}
_ACTION_TO = {
    ErrorAction.FAIL: udf_pb2.ErrorRule.ACTION_FAIL,
    ErrorAction.SKIP: udf_pb2.ErrorRule.ACTION_SKIP,
    ErrorAction.RETRY: udf_pb2.ErrorRule.ACTION_RETRY,
}
#: The defaults of an error rule that retries.
_RETRY = ErrorRule(ErrorAction.RETRY, max_attempts=3, initial_backoff_seconds=0.5)
#: The shortest timeout of a call, in seconds. Its message has whole microseconds: a shorter one would become zero.
_SHORTEST_SECONDS = 1e-6
_KIND_FROM = {number: kind for kind, number in _KIND_TO.items()}
_ACTION_FROM = {number: action for action, number in _ACTION_TO.items()}


def udf_to_proto(udf: UdfDefinition, *, with_source: bool = False) -> udf_pb2.UdfDefinition:
    output = pa.schema([_output_field(udf)])
    message = udf_pb2.UdfDefinition(
        name=udf.name,
        version=udf.version,
        kind=_KIND_TO[udf.kind],
        input_columns=udf.input_columns,
        output_schema=schema_to_bytes(output),
        json_output_schema=schema_to_json(output),
        stateful=udf.stateful,
        checkpoint=bounds_to_proto(udf.checkpoint),
        error_policy=error_policy_to_proto(udf.error_policy),
        batch_size=or_none(udf.batch_size),
        call_timeout=duration_to_proto(udf.timeout_seconds) if udf.timeout_seconds else None,
        resources=resources_to_proto(udf.resources),
        source=udf.source if with_source else "",
    )
    inputs = _input_schema(udf)
    if inputs is not None:
        message.input_schema = schema_to_bytes(inputs)
        message.json_input_schema.CopyFrom(schema_to_json(inputs))
    if udf.bundle_sha256:
        message.python_bundle.sha256 = udf.bundle_sha256
        message.python_bundle.python_version = udf.bundle_python
        message.python_bundle.size_bytes = udf.bundle_size
    elif udf.entrypoint:
        message.entrypoint = udf.entrypoint
    elif udf.sql_expression:
        message.sql_expression = udf.sql_expression
    elif udf.remote is not None:
        message.remote_function.addresses.extend(udf.remote.addresses)
        message.remote_function.function = udf.remote.function
    return message


def udf_from_proto(message: udf_pb2.UdfDefinition, described: FunctionDescription | None = None) -> UdfDefinition:
    """Convert a function.

    Args:
        described: The servers' description, if the function is remote. It completes the message.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH – the message and the description
            contradict each other.
    """
    if described is None:
        return _from_proto(message)
    full = complete_definition(message, described)
    udf = _from_proto(full)
    check_described(udf, described)
    return udf


def _from_proto(message: udf_pb2.UdfDefinition) -> UdfDefinition:
    policy = message.error_policy if message.HasField("error_policy") else None
    output = only_field(_schema(message, "output_schema"), "output_schema")
    _check_known(output)
    return UdfDefinition(
        name=message.name,
        version=message.version,
        kind=enum_value(_KIND_FROM, message.kind, "kind"),
        input_columns=tuple(message.input_columns),
        output_type=output.type,
        input_types=_input_types(message),
        bundle_sha256=message.python_bundle.sha256,
        bundle_python=message.python_bundle.python_version,
        bundle_size=message.python_bundle.size_bytes,
        entrypoint=message.entrypoint,
        stateful=message.stateful,
        checkpoint=bounds_from_proto(message.checkpoint),
        error_policy=ErrorPolicy() if policy is None else error_policy_from_proto(policy),
        batch_size=number_from_proto(message, "batch_size"),
        sql_expression=message.sql_expression,
        timeout_seconds=_timeout(message),
        blob=arrow_types.is_blob(output),
        resources=resources_from_proto(message.resources),
        remote=remote_from_proto(message),
        source=message.source,
    )


def remote_from_proto(message: udf_pb2.UdfDefinition) -> RemoteFunction | None:
    """Return a remote function's servers and its name on them (by default its own); None for any other function."""
    if not message.HasField("remote_function"):
        return None
    remote = message.remote_function
    return RemoteFunction(tuple(remote.addresses), remote.function or message.name)


def _timeout(message: udf_pb2.UdfDefinition) -> float:
    seconds = seconds_from_proto(message, "call_timeout")
    if message.HasField("call_timeout") and seconds < _SHORTEST_SECONDS:
        raise InvalidArgument(
            "BAD_NUMBER",
            "call_timeout is shorter than a microsecond: set a longer time, or leave it out",
            field="definition.call_timeout",
        )
    return seconds


def _check_known(field: pa.Field) -> None:
    """Refuse an unknown extension type.

    pyarrow would replace the type by its storage type. The stored function would then differ from the same function in
    a later request.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    name = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    if name and not arrow_types.is_blob(field):
        raise InvalidArgument(
            "BAD_UDF",
            f"The extension type {name} is not known to Arrow: declare the type that its values are stored as, "
            f"{field.type}",
            field="definition.output_schema",
        )
    for at in range(field.type.num_fields):
        if not isinstance(field.type, pa.BaseExtensionType) and not pa.types.is_union(field.type):
            _check_known(field.type.field(at))


def resources_to_proto(resources: Resources) -> udf_pb2.Resources | None:
    """Convert resources to a message; None if no resources were requested."""
    if resources == Resources():
        return None
    return udf_pb2.Resources(
        num_cpus=or_none(resources.num_cpus),
        num_gpus=or_none(resources.num_gpus),
        memory_bytes=or_none(resources.memory_bytes),
    )


def resources_from_proto(message: udf_pb2.Resources) -> Resources:
    return Resources(
        number_from_proto(message, "num_cpus"),
        positive_from_proto(message, "num_gpus"),
        number_from_proto(message, "memory_bytes"),
    )


def bounds_to_proto(bounds: CheckpointBounds) -> udf_pb2.CheckpointBounds:
    return udf_pb2.CheckpointBounds(
        checkpoint_size=or_none(bounds.checkpoint_size),
        min_checkpoint_size=or_none(bounds.min_checkpoint_size),
        max_checkpoint_size=or_none(bounds.max_checkpoint_size),
    )


def bounds_from_proto(message: udf_pb2.CheckpointBounds) -> CheckpointBounds:
    sizes = ("checkpoint_size", "min_checkpoint_size", "max_checkpoint_size")
    return CheckpointBounds(*(number_from_proto(message, size) for size in sizes))


def error_policy_to_proto(policy: ErrorPolicy) -> udf_pb2.ErrorPolicy:
    rules = [
        udf_pb2.ErrorRule(
            action=_ACTION_TO[rule.action],
            exception_types=rule.exception_types,
            message_pattern=rule.message_pattern,
            max_attempts=rule.max_attempts,
            initial_backoff=duration_to_proto(rule.initial_backoff_seconds),
            max_backoff=duration_to_proto(rule.max_backoff_seconds),
        )
        for rule in policy.rules
    ]
    return udf_pb2.ErrorPolicy(
        rules=rules,
        max_errors=or_none(policy.max_errors),
        max_error_fraction=or_none(policy.max_error_fraction),
        store_errors=policy.store_errors,
    )


def error_policy_from_proto(message: udf_pb2.ErrorPolicy) -> ErrorPolicy:
    """Convert a message to a policy, with the defaults for missing fields."""
    rules = tuple(_rule(rule) for rule in message.rules)
    return ErrorPolicy(
        rules,
        number_from_proto(message, "max_errors"),
        positive_from_proto(message, "max_error_fraction"),
        message.store_errors,
    )


def _rule(message: udf_pb2.ErrorRule) -> ErrorRule:
    action = enum_value(_ACTION_FROM, message.action, "error_policy.rules.action")
    default = _RETRY if action is ErrorAction.RETRY else ErrorRule(action)
    return ErrorRule(
        action=action,
        exception_types=tuple(message.exception_types),
        message_pattern=message.message_pattern,
        max_attempts=number_from_proto(message, "max_attempts", default=default.max_attempts),
        initial_backoff_seconds=seconds_from_proto(message, "initial_backoff", default=default.initial_backoff_seconds),
        max_backoff_seconds=seconds_from_proto(message, "max_backoff", default=default.max_backoff_seconds),
    )


def _output_field(udf: UdfDefinition) -> pa.Field:
    return pa.field("output", udf.output_type, metadata={arrow_types.BLOB_KEY: b"true"} if udf.blob else None)


def _input_schema(udf: UdfDefinition) -> pa.Schema | None:
    if not udf.input_types:
        return None
    types = [pa.null() if declared is None else declared for declared in udf.input_types]
    pairs = zip(udf.input_columns, types, strict=True)
    return pa.schema([pa.field(name, type_) for name, type_ in pairs])


def _schema(message: udf_pb2.UdfDefinition, field: str) -> pa.Schema:
    json_field = f"json_{field}"
    described = getattr(message, json_field) if message.HasField(json_field) else None  # type: ignore[arg-type]
    return schema_from_either(getattr(message, field), described, field)


def _input_types(message: udf_pb2.UdfDefinition) -> tuple[pa.DataType | None, ...]:
    if not message.input_schema and not message.HasField("json_input_schema"):
        return ()
    schema = _schema(message, "input_schema")
    return tuple(None if pa.types.is_null(field.type) else field.type for field in schema)


def preview_from_proto(
    message: jobs_pb2.PreviewFunctionRequest, described: FunctionDescription | None = None
) -> PreviewSpec:
    """Convert a request for a preview.

    Args:
        described: The servers' description, if the function is remote.

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
        raise InvalidArgument("BAD_REQUEST", "name a column or a function to preview", field="column")
    if spec.udf_version and not spec.udf_name:
        raise InvalidArgument("BAD_REQUEST", "a version of a function needs its name", field="udf")
    if message.WhichOneof("function") is not None and not spec.names_function:
        raise InvalidArgument("BAD_REQUEST", "the given function is empty: name one", field="function")
    if spec.sql_expression and spec.input_columns:
        raise InvalidArgument(
            "BAD_REQUEST", "a SQL expression names its columns itself: omit input_columns", field="input_columns"
        )
    if spec.column and spec.input_columns and not spec.names_function:
        raise InvalidArgument(
            "BAD_REQUEST",
            "a column has its own inputs: name a function too, or omit input_columns",
            field="input_columns",
        )
    if spec.error_policy is not None and not spec.sql_expression:
        raise InvalidArgument(
            "BAD_REQUEST",
            "leave out the error policy: a function has the one of its definition, only a SQL expression has none",
            field="error_policy",
        )
    if message.HasField("read_version") and spec.read_version < 1:
        raise InvalidArgument(
            "BAD_NUMBER", "read_version is 1 or more; leave it out for the latest", field="read_version"
        )
    if message.HasField("read_tag") and not spec.read_tag.strip():
        raise InvalidArgument(
            "BAD_REQUEST", "read_tag is empty: give a tag's name, or leave the field out", field="read_tag"
        )
