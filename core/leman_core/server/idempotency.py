"""Which methods change nothing, may be asked for with GET, or may be sent again, as the protos say."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor

from leman.v1 import annotations_pb2
from leman_core.server.request_texts import REQUEST_ID

_OPTIONS = descriptor_pb2.MethodOptions


def allows_get(method: MethodDescriptor) -> bool:
    """Return whether HTTP's GET may ask for a method (`idempotency_level = NO_SIDE_EFFECTS`).

    A web page can cause a GET unasked: such a method changes nothing, runs nothing of its caller's, and costs little.
    """
    return bool(method.GetOptions().idempotency_level == _OPTIONS.NO_SIDE_EFFECTS)


def changes_nothing(method: MethodDescriptor) -> bool:
    """Return whether a method only reads, whatever that costs."""
    return allows_get(method) or bool(method.GetOptions().Extensions[annotations_pb2.access].reads)


def may_be_repeated(method: MethodDescriptor) -> bool:
    """Tell whether a request that is sent again does nothing more, if it carries a request id where it can."""
    declared = method.GetOptions().idempotency_level != _OPTIONS.IDEMPOTENCY_UNKNOWN
    return declared or REQUEST_ID in method.input_type.fields_by_name
