"""The way of spans out of a process. Imported only where traces are asked for."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from leman_core.telemetry import tracing
from leman_core.telemetry.otlp import Collector

_TRACER = "leman"


class TracesExport:
    """The spans of one process on their way to a collector, from now until `stop`.

    Which traces are sampled, and how many spans wait at the most, the SDK reads from its variables.
    """

    def __init__(self, collector: Collector, resource: Resource) -> None:
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**collector.options)))
        tracing.begin(self._provider.get_tracer(_TRACER))

    def stop(self) -> None:
        """Make no spans any more, and send what is left, which blocks for as long as the collector takes."""
        tracing.stop()
        self._provider.shutdown()
