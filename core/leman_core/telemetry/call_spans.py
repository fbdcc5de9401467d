"""The spans of the calls that a service takes."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from leman_core.telemetry import tracing
from leman_core.telemetry.tracing import TRACEPARENT, TRACESTATE, Parent, Span

_KEYS = (TRACEPARENT, TRACESTATE)


def begin_call(path: str, metadata: Mapping[str, str | bytes], *, reads: bool) -> Span | None:
    """Begin the span of a call, which its task works on from now on; None: it has none.

    A call that its caller traces is part of that trace. Another one begins a trace, unless it changes nothing: who
    watches a job asks again and again.
    """
    if not tracing.is_on():
        return None
    carrier = {key: text for key in _KEYS if isinstance(text := metadata.get(key), str)}
    if reads and not carrier:
        return None
    method = path.removeprefix("/")
    attributes = {"rpc.system.name": "grpc", "rpc.method": method}
    span = tracing.started(method, Parent(carrier), attributes, serves=True)
    if span is not None:
        tracing.enter(span)  # never left: the task ends with its call
        structlog.contextvars.bind_contextvars(trace_id=span.trace_id)
    return span


def end_call(span: Span, code: str, reason: str) -> None:
    """End the span of a call."""
    span.note({"rpc.response.status_code": code})
    span.end("" if code == "OK" else reason or code)
