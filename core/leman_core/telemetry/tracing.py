"""Spans, among them those of calls.

Spans: what took how long, and because of what. Until `begin` there are none, and no OpenTelemetry is loaded.

A span is entered for the task, or the thread, that works on it: calls to other services carry it from there
(`outgoing`). What outlives the call that asked for it, such as a job, is given its parent by name.

The spans of the calls that a service takes.
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
    """Something that is at work, or was."""

    def __init__(self, made: OtelSpan) -> None:
        self._made = made
        self._ended = False

    @property
    def traceparent(self) -> str:
        """What names it as a parent, as W3C has it; empty: it is not sampled."""
        return self.carrier.get(TRACEPARENT, "") if self._made.is_recording() else ""

    @property
    def trace_id(self) -> str:
        """The id of its trace, in hex."""
        return f"{self._made.get_span_context().trace_id:032x}"

    @property
    def carrier(self) -> dict[str, str]:
        """Return what a call carries that is made because of it."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - loaded by anyone who made it
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        given: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(given, set_span_in_context(self._made))
        return given

    def note(self, attributes: SpanAttributes) -> None:
        """Add attributes."""
        self._made.set_attributes(dict(attributes))

    def end(self, error: str = "", at: int | None = None) -> None:
        """End it; a second end does nothing.

        Args:
            error: Why what it is about failed; empty: it did not.
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
    """A span of another process, or of one that is dead."""

    carrier: Mapping[str, str]


def start_tracing(tracer: Tracer) -> None:
    """Have spans made from now on."""
    _tracers[:] = [tracer]


def stop_tracing() -> None:
    """Make no spans any more."""
    _tracers.clear()


def is_tracing() -> bool:
    """Return whether spans are made."""
    return bool(_tracers)


def current_span() -> Span | None:
    """Return the span that this task works on."""
    return _current.get()


def enter(span: Span | None) -> contextvars.Token[Span | None]:
    """Work on a span in this task, and in tasks that it starts, until `leave`."""
    return _current.set(span)


def leave(token: contextvars.Token[Span | None]) -> None:
    """Work on what was worked on before."""
    _current.reset(token)


def outgoing_metadata() -> dict[str, str]:
    """Return the metadata that a call to another service carries, so that it is part of the same trace."""
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
    """Return a new span, which is to be ended; None: no spans are made.

    Args:
        name: What is done, of a few words: what it is done to are attributes.
        parent: None: it begins a trace.
        attributes: What is known of it.
        serves: Whether it answers a call of another process.
        at: When it began, in nanoseconds since the epoch; None: now.
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
    """Work on a new span inside of the block; None: no spans are made.

    An exception ends it as failed, by its reason or its type.

    Args:
        name: See `started`.
        parent: None: what this task works on already; where that is nothing, there is no span either.
        attributes: What is known of it.
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
    """Return why a span failed that an exception ends: its reason, or its type."""
    return str(getattr(error, "reason", "") or type(error).__name__)


def record_span(name: str, parent: Span | Parent | None, begin: int, end: int, attributes: SpanAttributes) -> None:
    """Record what is over.

    Args:
        name: See `started`.
        parent: None: there is no trace that it belongs to, and nothing is recorded.
        begin: Nanoseconds since the epoch.
        end: Nanoseconds since the epoch.
        attributes: What is known of it.
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
    """Begin the span of a call, which its task works on from now on; None: it has none.

    A call that its caller traces is part of that trace. Another one begins a trace, unless it changes nothing: who
    watches a job asks again and again.
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
