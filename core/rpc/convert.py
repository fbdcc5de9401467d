"""Protobuf messages ↔ domain values, for every message of a plan or of a function that services exchange.

`*_to_proto` never fails. `*_from_proto` raises InvalidArgument: UNKNOWN_VALUE for an enum value that this
release does not know, BAD_SCHEMA for bytes that are no Arrow schema.
"""

from core.rpc.convert_arrow import (
    field_from_bytes,
    schema_from_bytes,
    schema_to_bytes,
)
from core.rpc.convert_plans import (
    add_task,
    checkpoint_ref_from_proto,
    checkpoint_ref_to_proto,
    followed_from_proto,
    followed_to_proto,
    header_from_proto,
    header_to_proto,
    kept_from_proto,
    kept_to_proto,
    output_from_proto,
    output_to_proto,
    range_from_proto,
    range_to_proto,
    reason_count_from_proto,
    reason_count_to_proto,
    spec_from_proto,
    spec_to_proto,
    staged_from_proto,
    staged_to_proto,
    task_from_proto,
    value_state_from_proto,
)
from core.rpc.convert_udfs import (
    bounds_from_proto,
    bounds_to_proto,
    error_policy_from_proto,
    error_policy_to_proto,
    resources_from_proto,
    resources_to_proto,
    udf_from_proto,
    udf_to_proto,
)

__all__ = [
    "add_task",
    "bounds_from_proto",
    "bounds_to_proto",
    "checkpoint_ref_from_proto",
    "checkpoint_ref_to_proto",
    "error_policy_from_proto",
    "error_policy_to_proto",
    "field_from_bytes",
    "followed_from_proto",
    "followed_to_proto",
    "header_from_proto",
    "header_to_proto",
    "kept_from_proto",
    "kept_to_proto",
    "output_from_proto",
    "output_to_proto",
    "range_from_proto",
    "range_to_proto",
    "reason_count_from_proto",
    "reason_count_to_proto",
    "resources_from_proto",
    "resources_to_proto",
    "schema_from_bytes",
    "schema_to_bytes",
    "spec_from_proto",
    "spec_to_proto",
    "staged_from_proto",
    "staged_to_proto",
    "task_from_proto",
    "udf_from_proto",
    "udf_to_proto",
    "value_state_from_proto",
]
