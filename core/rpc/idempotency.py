"""Which methods change nothing, and which may be sent again: what the options and requests of the protos say."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor

from core.rpc.request_ids import REQUEST_ID

_OPTIONS = descriptor_pb2.MethodOptions


def changes_nothing(method: MethodDescriptor) -> bool:
    """Tell whether a method only looks (`idempotency_level = NO_SIDE_EFFECTS`)."""
    return bool(method.GetOptions().idempotency_level == _OPTIONS.NO_SIDE_EFFECTS)


def may_be_repeated(method: MethodDescriptor) -> bool:
    """Tell whether a request that is sent again does nothing more, if it carries a request id where it can."""
    declared = method.GetOptions().idempotency_level != _OPTIONS.IDEMPOTENCY_UNKNOWN
    return declared or REQUEST_ID in method.input_type.fields_by_name
