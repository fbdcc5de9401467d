"""Spans: how long work took, and which work caused it.

Until `start_tracing` there are none, and OpenTelemetry is not loaded.

A task or thread enters the span that it works on, and its calls to other services carry it (`outgoing_metadata`). Work
that outlives its call, such as a job, gets its parent explicitly.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer


TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
SpanAttributes: TypeAlias = Mapping[str, str | int | float]

_tracers: list[Tracer] = []
_current: contextvars.ContextVar[Span | None] = contextvars.ContextVar("leman_span", default=None)


class Span:
    """A span of this process."""

    def __init__(self, made: OtelSpan) -> None:
        self._made = made
        self._ended = False

    @property
    def traceparent(self) -> str:
        """Return its W3C traceparent; empty if it is not sampled."""
        return self.carrier.get(TRACEPARENT, "") if self._made.is_recording() else ""

    @property
    def trace_id(self) -> str:
        """Return the id of its trace in hex."""
        return f"{self._made.get_span_context().trace_id:032x}"

    @property
    def carrier(self) -> dict[str, str]:
        """Return the metadata of calls that it causes."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - loaded before the span was made
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        given: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(given, set_span_in_context(self._made))
        return given

    def note(self, attributes: SpanAttributes) -> None:
        """Add attributes."""
        self._made.set_attributes(dict(attributes))

    def end(self, error: str = "", at: int | None = None) -> None:
        """End the span; a second end does nothing.

        Args:
            error: Why the work failed; empty: it succeeded.
            at: Nanoseconds since the epoch; None: now.
        """
        if self._ended:
            return
        self._ended = True
        if error:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - as above

            self._made.set_attribute("error.type", error)
            self._made.set_status(Status(StatusCode.ERROR))
        self._made.end(at)


@dataclass(frozen=True, slots=True)
class Parent:
    """A span of another or an earlier process."""

    carrier: Mapping[str, str]


def start_tracing(tracer: Tracer) -> None:
    """Make spans from now on."""
    _tracers[:] = [tracer]


def stop_tracing() -> None:
    """Stop making spans."""
    _tracers.clear()


def is_tracing() -> bool:
    """Return whether spans are made."""
    return bool(_tracers)


def current_span() -> Span | None:
    """Return the span of this task, or None."""
    return _current.get()


def enter(span: Span | None) -> contextvars.Token[Span | None]:
    """Work on a span in this task, and in tasks that it starts, until `leave`."""
    return _current.set(span)


def leave(token: contextvars.Token[Span | None]) -> None:
    """Return to the span before `enter`."""
    _current.reset(token)


def outgoing_metadata() -> dict[str, str]:
    """Return the metadata that make a call to another service part of the trace."""
    span = _current.get() if _tracers else None
    return {} if span is None else span.carrier


def start_span(
    name: str,
    parent: Span | Parent | None = None,
    attributes: SpanAttributes | None = None,
    *,
    serves: bool = False,
    at: int | None = None,
) -> Span | None:
    """Return a new span, which the caller ends; None if no spans are made.

    Args:
        name: The work in a few words; its objects are attributes.
        parent: None: the span begins a trace.
        serves: Whether it answers a call of another process.
        at: Its start in nanoseconds since the epoch; None: now.
    """
    if not _tracers:
        return None
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - loaded already, where there is a tracer

    kind = SpanKind.SERVER if serves else SpanKind.INTERNAL
    return Span(_tracers[0].start_span(name, _context(parent), kind, dict(attributes or {}), start_time=at))


@contextlib.contextmanager
def span(
    name: str, parent: Span | Parent | None = None, attributes: SpanAttributes | None = None
) -> Iterator[Span | None]:
    """Work on a new span for the duration of the block; None if no spans are made.

    An exception ends the span as failed, with its reason or its type.

    Args:
        name: As `start_span`.
        parent: None: the current span; without one, no span is made.
    """
    above = parent or _current.get()
    made = None if above is None else start_span(name, above, attributes)
    if made is None:
        yield None
        return
    token = _current.set(made)
    try:
        yield made
    except BaseException as error:
        made.end(failure_of(error))
        raise
    else:
        made.end()
    finally:
        with contextlib.suppress(ValueError):  # a generator may be closed by another task than the one that ran it
            _current.reset(token)


def failure_of(error: BaseException) -> str:
    """Return the failure of a span that an exception ends: its reason, or its type."""
    return str(getattr(error, "reason", "") or type(error).__name__)


def record_span(name: str, parent: Span | Parent | None, begin: int, end: int, attributes: SpanAttributes) -> None:
    """Record a span of finished work; do nothing without a parent.

    Args:
        name: As `start_span`.
        begin: Nanoseconds since the epoch.
        end: Nanoseconds since the epoch.
    """
    made = start_span(name, parent, attributes, at=begin) if parent is not None else None
    if made is not None:
        made.end(at=end)


def _context(parent: Span | Parent | None) -> Any:
    from opentelemetry.context import Context  # noqa: PLC0415 - loaded already, where there is a tracer
    from opentelemetry.trace import set_span_in_context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    if isinstance(parent, Span):
        return set_span_in_context(parent._made, Context())
    carrier = parent.carrier if parent is not None else {}
    return TraceContextTextMapPropagator().extract(dict(carrier), Context())


_KEYS = (TRACEPARENT, TRACESTATE)


def begin_call(path: str, metadata: Mapping[str, str | bytes], *, reads: bool) -> Span | None:
    """Begin and enter the span of a call, or return None.

    A call is part of its caller's trace. Without one it begins a trace, unless it only reads: callers that poll would
    make a trace for each call.
    """
    if not is_tracing():
        return None
    carrier = {key: text for key in _KEYS if isinstance(text := metadata.get(key), str)}
    if reads and not carrier:
        return None
    method = path.removeprefix("/")
    attributes = {"rpc.system.name": "grpc", "rpc.method": method}
    span = start_span(method, Parent(carrier), attributes, serves=True)
    if span is not None:
        enter(span)  # never left: the task ends with its call
        structlog.contextvars.bind_contextvars(trace_id=span.trace_id)
    return span


def end_call(span: Span, code: str, reason: str) -> None:
    """End the span of a call."""
    span.note({"rpc.response.status_code": code})
    span.end("" if code == "OK" else reason or code)
