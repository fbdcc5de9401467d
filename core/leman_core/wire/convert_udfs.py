"""Functions and their options in protobuf messages ↔ domain values. `leman_core.wire.convert` says what is raised."""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

import pyarrow as pa

from leman.v1 import udf_pb2
from leman_core.functions import blobs
from leman_core.functions.remote.protocol import FunctionDescription
from leman_core.model.errors import InvalidArgument
from leman_core.model.udf import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman_core.wire import convert_remote
from leman_core.wire.convert_arrow import known, only_field, schema_to_bytes
from leman_core.wire.convert_types import schema_from_either, schema_to_json
from leman_core.wire.convert_values import (
    duration_to_proto,
    given,
    number_from_proto,
    positive_from_proto,
    seconds_from_proto,
)

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
#: What a rule that retries has where it leaves these out.
_RETRY = ErrorRule(ErrorAction.RETRY, max_attempts=3, initial_backoff_seconds=0.5)
#: Of a call: what is shorter is zero on its way back.
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
        batch_size=given(udf.batch_size),
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
    """Return a function.

    Args:
        described: what the servers of a remote one say, which takes the place of what the message leaves out.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH, where they say something else.
    """
    if described is None:
        return _from_proto(message)
    full = convert_remote.completed(message, described)
    udf = _from_proto(full)
    convert_remote.check(udf, described)
    return udf


def _from_proto(message: udf_pb2.UdfDefinition) -> UdfDefinition:
    policy = message.error_policy if message.HasField("error_policy") else None
    output = only_field(_schema(message, "output_schema"), "output_schema")
    _check_known(output)
    return UdfDefinition(
        name=message.name,
        version=message.version,
        kind=known(_KIND_FROM, message.kind, "kind"),
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
        blob=blobs.is_blob(output),
        resources=resources_from_proto(message.resources),
        remote=remote_from_proto(message),
        source=message.source,
    )


def remote_from_proto(message: udf_pb2.UdfDefinition) -> RemoteFunction | None:
    """Return where the function is served; None where it is no remote one. By itself it has the name it has here."""
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
    """Refuse an extension type that is not known here.

    It would be taken for what it rests on, and the function for another one the next time.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    name = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    if name and not blobs.is_blob(field):
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
    """Return the message; None where nothing was asked, so that the message is absent."""
    if resources == Resources():
        return None
    return udf_pb2.Resources(
        num_cpus=given(resources.num_cpus),
        num_gpus=given(resources.num_gpus),
        memory_bytes=given(resources.memory_bytes),
    )


def resources_from_proto(message: udf_pb2.Resources) -> Resources:
    return Resources(
        number_from_proto(message, "num_cpus"),
        positive_from_proto(message, "num_gpus"),
        number_from_proto(message, "memory_bytes"),
    )


def bounds_to_proto(bounds: CheckpointBounds) -> udf_pb2.CheckpointBounds:
    return udf_pb2.CheckpointBounds(
        checkpoint_size=given(bounds.checkpoint_size),
        min_checkpoint_size=given(bounds.min_checkpoint_size),
        max_checkpoint_size=given(bounds.max_checkpoint_size),
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
        max_errors=given(policy.max_errors),
        max_error_fraction=given(policy.max_error_fraction),
        store_errors=policy.store_errors,
    )


def error_policy_from_proto(message: udf_pb2.ErrorPolicy) -> ErrorPolicy:
    """Return the policy; fields that are left out have their defaults."""
    rules = tuple(_rule(rule) for rule in message.rules)
    return ErrorPolicy(
        rules,
        number_from_proto(message, "max_errors"),
        positive_from_proto(message, "max_error_fraction"),
        message.store_errors,
    )


def _rule(message: udf_pb2.ErrorRule) -> ErrorRule:
    action = known(_ACTION_FROM, message.action, "error_policy.rules.action")
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
    return pa.field("output", udf.output_type, metadata={blobs.BLOB_KEY: b"true"} if udf.blob else None)


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
