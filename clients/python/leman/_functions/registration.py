"""Registration of functions in a database: bundles, which are uploaded, and installed and remote functions by name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Literal

import grpc

from leman._arrow import pa
from leman._call_boundary import warn
from leman._functions.udf_decorator import UDF, UdfOptions
from leman._signature import check_columns, is_blob
from leman._wire.channel import Services
from leman._wire.conversions import schema
from leman._wire.wire_values import function_ref, or_none, seconds
from leman.error_handling import ErrorHandlingConfig
from leman.errors import DataLoss, InvalidArgument, UdfDefinitionError, UdfExists, UdfNotFound
from leman.v1 import catalog_pb2, udf_pb2

INLINE_BYTES = 512 << 10
"""A bundle of at most this size fits into one message, whatever limit the services have."""

_SERVICE = "planner"
_PIECE_BYTES = 512 << 10
_AN_HOUR = 3600.0


def upload_bundle(services: Services, database: str, bundle: udf_pb2.PythonBundle, data: bytes) -> None:
    """Store a bundle that does not fit into one message, in pieces, with retries. Raises LemanError."""
    header = catalog_pb2.UploadBundleHeader(database=database, sha256=bundle.sha256, size_bytes=bundle.size_bytes)
    patience = services.patient()
    while True:
        try:
            services.catalog.UploadBundle(_messages(header, data), timeout=_AN_HOUR)
        except (grpc.RpcError, ValueError) as error:  # the channel raises ValueError when closed
            services.wait_or_raise(_SERVICE, error, patience, repeatable=True)
        else:
            return


def _messages(header: catalog_pb2.UploadBundleHeader, data: bytes) -> Iterator[catalog_pb2.UploadBundleRequest]:
    yield catalog_pb2.UploadBundleRequest(header=header)
    for at in range(0, len(data), _PIECE_BYTES):
        yield catalog_pb2.UploadBundleRequest(data=data[at : at + _PIECE_BYTES])


Kind = Literal["scalar", "array", "record_batch"]


def entrypoint_definition(
    entrypoint: str,
    *,
    name: str,
    version: str,
    input_columns: Sequence[str],
    data_type: pa.DataType,
    kind: Kind,
    error_handling: ErrorHandlingConfig | None,
) -> udf_pb2.UdfDefinition:
    """Return the definition of a function that is installed on the workers. Raises UdfDefinitionError."""
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


def remote_definition(
    name: str,
    *,
    addresses: Sequence[str],
    function: str,
    version: str,
    input_columns: Sequence[str] | None,
    options: UdfOptions,
) -> udf_pb2.UdfDefinition:
    """Return the parts of a remote function's definition that the caller gives. Raises UdfDefinitionError.

    The services add the parts that the function servers report.
    """
    if isinstance(addresses, str) or not all(isinstance(address, str) for address in addresses):
        raise UdfDefinitionError(f"addresses is a list of texts, such as ['grpc://host:7815'], not {addresses!r}")
    columns = () if input_columns is None else check_columns(input_columns, "input_columns")
    return udf_pb2.UdfDefinition(
        name=name,
        version=version,
        kind=udf_pb2.UdfDefinition.KIND_REMOTE,
        input_columns=columns,
        remote_function=udf_pb2.RemoteFunction(addresses=addresses, function=function),
        **options.proto(),
    )


#: Words in the names of environment variables that suggest secrets; and the length below which a value may occur in
#: code by chance.
_SECRET_WORDS, _SHORTEST_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"), 8


class Registration:
    """Registers functions in one database, and finds registered ones."""

    def __init__(self, services: Services, database: str) -> None:
        self._services = services
        self._database = database

    def resolve(self, udf: UDF | str) -> udf_pb2.UdfDefinition:
        """Return the stored definition of a function, or of `name[@version]`. Register the function if needed.

        Raises UdfNotFound, UdfExists, UdfDefinitionError, InvalidArgument.
        """
        if isinstance(udf, UDF):
            return self._register(udf)
        given: object = udf
        if not isinstance(given, str) or not given:
            raise InvalidArgument(f"udf is a function made by @leman.udf, or the name of a registered one, not {udf!r}")
        name, _, version = udf.partition("@")
        return self._get(name, version)

    def _register(self, udf: UDF) -> udf_pb2.UdfDefinition:
        wanted = udf.describe()
        try:
            found = self._find(wanted.name, wanted.version)
        except (UdfNotFound, DataLoss):  # a damaged definition is replaced
            return self._upload(udf, wanted)
        stored = found.definition
        _check_same(wanted, stored)
        if found.needs_bundle:
            return self._upload(udf, wanted)
        if _options(wanted) != _options(stored) or (wanted.source and not stored.source):
            stored = self._set_options(wanted, stored)
        if udf.has_explicit_version and udf.bundle()[0].sha256 != stored.python_bundle.sha256:
            warnings.warn(
                f"UDF '{udf.name}' was registered before with version {udf.version!r}, and that code is used."
                " If you have changed the code since, give it another version=.",
                stacklevel=6,
            )
        return stored

    def _set_options(self, wanted: udf_pb2.UdfDefinition, stored: udf_pb2.UdfDefinition) -> udf_pb2.UdfDefinition:
        """Store the function with the options of `wanted`, and return its stored definition."""
        definition = udf_pb2.UdfDefinition()
        definition.CopyFrom(stored)
        for option in ("batch_size", "call_timeout", "checkpoint", "error_policy", "resources"):
            definition.ClearField(option)
        definition.MergeFrom(
            udf_pb2.UdfDefinition(
                batch_size=or_none(wanted, "batch_size"),
                call_timeout=or_none(wanted, "call_timeout"),
                checkpoint=wanted.checkpoint,
                error_policy=wanted.error_policy,
                resources=or_none(wanted, "resources"),
                source=stored.source or wanted.source,
            )
        )
        self._services.catalog.RegisterUdf(
            catalog_pb2.RegisterUdfRequest(database=self._database, definition=definition)
        )
        return definition

    def _upload(self, udf: UDF, definition: udf_pb2.UdfDefinition) -> udf_pb2.UdfDefinition:
        described, data = udf.bundle()
        _warn_of_secrets(udf.name, data)
        definition.python_bundle.CopyFrom(described)
        request = catalog_pb2.RegisterUdfRequest(database=self._database, definition=definition)
        try:
            if len(data) > INLINE_BYTES:
                upload_bundle(self._services, self._database, described, data)
            else:
                request.bundle = data
            self._services.catalog.RegisterUdf(request)
        except InvalidArgument as error:
            if error.reason != "BUNDLE_TOO_LARGE":
                raise
            raise InvalidArgument(
                f"UDF '{udf.name}' is too large to send ({len(data):,} bytes). Load large data in __init__ of a class"
                f" instead of keeping it in a global. ({error.message})",
                reason=error.reason,
            ) from None
        except UdfExists:  # another process registered the same code concurrently, with a different pickle
            stored = self._get(definition.name, definition.version)
            _check_same(definition, stored)
            return stored
        return definition

    def _get(self, name: str, version: str) -> udf_pb2.UdfDefinition:
        return self._find(name, version).definition

    def _find(self, name: str, version: str) -> catalog_pb2.GetUdfResponse:
        request = catalog_pb2.GetUdfRequest(database=self._database, udf=function_ref(name, version))
        return self._services.catalog.GetUdf(request)


def _warn_of_secrets(name: str, bundle: bytes) -> None:
    """Warn if a function's code contains the value of an environment variable whose name suggests a secret."""
    for variable, value in os.environ.items():
        secret = len(value) >= _SHORTEST_SECRET and any(word in variable.upper() for word in _SECRET_WORDS)
        if secret and value.encode(errors="surrogateescape") in bundle:
            warn(
                f"UDF '{name}' contains the value of the environment variable {variable}, for example in a global."
                f" The database stores it in plain text, and another value makes a new version. Read os.environ inside"
                f" the function, and pass env={{'{variable}': …}} to backfill()."
            )


def _check_same(wanted: udf_pb2.UdfDefinition, stored: udf_pb2.UdfDefinition) -> None:
    """Raise UdfExists if the registered function differs in more than its pickled bytes and its options."""
    who = f"UDF '{wanted.name}' is registered with version {wanted.version!r}"
    changed = _differences(_interface(wanted), _interface(stored))
    if changed:
        raise UdfExists(f"{who} and another definition ({changed}): give it another version=")


def _differences(wanted: dict[str, object], stored: dict[str, object]) -> str:
    return ", ".join(name for name, value in wanted.items() if value != stored[name])


def _interface(definition: udf_pb2.UdfDefinition) -> dict[str, object]:
    # Compare the types, not their encodings.
    declared = schema(definition.input_schema).types if definition.input_schema else []
    return {
        "what it is called with": definition.kind,
        "input_columns": list(definition.input_columns),
        "types of its parameters": [] if all(pa.types.is_null(type_) for type_ in declared) else declared,
        "data_type": schema(definition.output_schema).field(0).type,
        "blob": is_blob(schema(definition.output_schema).field(0)),
        "being a class": definition.stateful,
    }


def _options(definition: udf_pb2.UdfDefinition) -> dict[str, object]:
    bounds, policy = definition.checkpoint, definition.error_policy
    return {
        "batch_size": definition.batch_size,
        "timeout": seconds(definition.call_timeout),
        "num_cpus": definition.resources.num_cpus,
        "num_gpus": definition.resources.num_gpus,
        "memory": definition.resources.memory_bytes,
        "checkpoint_size": bounds.checkpoint_size,
        "min_checkpoint_size": bounds.min_checkpoint_size,
        "max_checkpoint_size": bounds.max_checkpoint_size,
        "error_handling": [
            policy.max_errors,
            policy.max_error_fraction,
            policy.store_errors,
            *(_rule(rule) for rule in policy.rules),
        ],
    }


def _rule(rule: udf_pb2.ErrorRule) -> list[object]:
    retry = rule.action == udf_pb2.ErrorRule.ACTION_RETRY
    pauses = [rule.max_attempts, seconds(rule.initial_backoff), seconds(rule.max_backoff)] if retry else []
    return [rule.action, list(rule.exception_types), rule.message_pattern, *pauses]
