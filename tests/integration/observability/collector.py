"""A collector in this process: it takes what services send by OTLP over gRPC, and keeps it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

DEADLINE = 60.0


@dataclass(frozen=True)
class Sent:
    """A span as it was sent. Times are nanoseconds since the epoch."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, object]


class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """`metrics`: the names that each service has sent, by the service's name; `spans`: all that were sent."""

    def __init__(self) -> None:
        self.metrics: dict[str, set[str]] = {}
        self.spans: list[Sent] = []
        self.news = threading.Condition()

    def Export(self, request, context):
        with self.news:
            for resource in request.resource_metrics:
                names = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
                self.metrics.setdefault(service_of(resource), set()).update(names)
            self.news.notify_all()
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true of what was sent."""
        with self.news:
            assert self.news.wait_for(true, DEADLINE), (self.metrics, [(s.service, s.name) for s in self.spans])

    def trace(self, trace_id: str) -> list[Sent]:
        return [span for span in self.spans if span.trace_id == trace_id]


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request, context):
        with self._collector.news:
            for resource in request.resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self._collector.spans.append(_sent(service_of(resource), span))
            self._collector.news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()


def _sent(service: str, span) -> Sent:
    values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Sent(service, span.name, *ids, span.start_time_unix_nano, span.end_time_unix_nano, values)


def service_of(resource) -> str:
    return next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")


@contextlib.contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector and its endpoint."""
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(collector), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None)
