"""Functions that a server of their author's computes: named with its addresses, not sent."""

from __future__ import annotations

from collections.abc import Sequence

from leman._signature import check_columns
from leman._udf_options import UdfOptions
from leman._wire_values import duration
from leman.errors import UdfDefinitionError
from leman.v1 import udf_pb2


def definition(
    name: str,
    *,
    addresses: Sequence[str],
    function: str,
    version: str,
    input_columns: Sequence[str] | None,
    options: UdfOptions,
) -> udf_pb2.UdfDefinition:
    """The definition on the wire, without what the servers say. Raises UdfDefinitionError, InvalidArgument."""
    if isinstance(addresses, str) or not all(isinstance(address, str) for address in addresses):
        raise UdfDefinitionError(f"addresses is a list of texts, such as ['grpc://host:7815'], not {addresses!r}")
    columns = () if input_columns is None else check_columns(input_columns, "input_columns")
    return udf_pb2.UdfDefinition(
        name=name,
        version=version,
        kind=udf_pb2.UdfDefinition.KIND_REMOTE,
        input_columns=columns,
        remote_function=udf_pb2.RemoteFunction(addresses=addresses, function=function),
        checkpoint=udf_pb2.CheckpointBounds(
            checkpoint_size=options.checkpoint_size,
            min_checkpoint_size=options.min_checkpoint_size,
            max_checkpoint_size=options.max_checkpoint_size,
        ),
        error_policy=options.error_handling.proto(),
        batch_size=options.batch_size,
        call_timeout=duration(options.timeout),
    )
