"""Calls of a program that OpenTelemetry traces carry its span, and none ends by what its tracing does."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from leman._wire.channel import metadata

SPAN = trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))


def test_calls_carry_the_span_at_hand():
    with trace.use_span(trace.NonRecordingSpan(SPAN)):
        assert dict(metadata(""))["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert "traceparent" not in dict(metadata(""))


def test_no_call_ends_by_the_programs_tracing(monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no such propagator")

    monkeypatch.setattr("opentelemetry.trace.propagation.tracecontext.TraceContextTextMapPropagator.inject", broken)
    with trace.use_span(trace.NonRecordingSpan(SPAN)):
        assert [key for key, _ in metadata("t")] == ["x-request-id", "authorization"]


def test_propagators_that_the_environment_names_are_not_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_PROPAGATORS", "nope")
    with trace.use_span(trace.NonRecordingSpan(SPAN)):
        assert "traceparent" in dict(metadata(""))
